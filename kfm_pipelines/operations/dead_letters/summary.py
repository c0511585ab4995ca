"""Summarises a message for records: withholds possible coordinates, and fields about places or secrets."""

import json
import re
from contextlib import suppress

from kfm_pipelines.errors import BodyUnreadable
from kfm_pipelines.events.body import read_body
from kfm_pipelines.text import WITHHELD, redact_coordinates, truncate_line

MAX_FIELDS = 40
MAX_DEPTH = 4
MAX_TEXT_LENGTH = 120

_SENSITIVE_NAME = re.compile(
    r"lat|lon|lng|coord|geom|wkt|bbox|place|where|address|secret|token|passw|credential|signature|authori|cookie"
    r"|principal|sourceip|x-amz|unsubscribe",
    re.IGNORECASE,
)


def summarise_body(body: str) -> dict[str, object]:
    """Returns the size and, for JSON, the fields of a message, bounded in number, depth and length."""
    described: dict[str, object] = {"bytes": len(body.encode("utf-8", "replace"))}
    try:
        document = read_body(body)
    except BodyUnreadable:
        return {**described, "starts": _text(body[: 2 * MAX_TEXT_LENGTH])}
    if isinstance(document, dict) and isinstance(document.get("Message"), str):
        with suppress(BodyUnreadable):
            document = {**document, "Message": read_body(document["Message"])}
    fields: dict[str, object] = {}
    _collect("", document, MAX_DEPTH, fields)
    return {**described, "fields": fields}


def _collect(path: str, value: object, depth: int, fields: dict[str, object]) -> None:
    if len(fields) >= MAX_FIELDS:
        return
    if isinstance(value, dict) and depth:
        for name in list(value)[:MAX_FIELDS]:
            below = f"{path}.{_text(name)}" if path else _text(name)
            if _SENSITIVE_NAME.search(name):
                fields[below] = WITHHELD
            else:
                _collect(below, value[name], depth - 1, fields)
    elif isinstance(value, list) and depth:
        for number, one in enumerate(value[:3]):
            _collect(f"{path}[{number}]", one, depth - 1, fields)
    else:
        fields[path] = _redact_value(value)


def _redact_value(value: object) -> object:
    if isinstance(value, bool | int) or value is None:
        return value if len(str(value)) < 20 else WITHHELD
    if isinstance(value, float):
        return WITHHELD
    return _text(value if isinstance(value, str) else json.dumps(value))


def _text(text: str) -> str:
    return redact_coordinates(truncate_line(text, MAX_TEXT_LENGTH))

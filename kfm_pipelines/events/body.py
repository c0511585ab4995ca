"""Reads a message body as JSON, within limits that no honest message reaches."""

import json
import math
import re
from collections import Counter
from typing import NoReturn

from kfm_pipelines.errors import BodyUnreadable
from kfm_pipelines.text import quote_value

MAX_BYTES = 1024 * 1024  # the largest message SQS carries
MAX_DEPTH = 64
MAX_DIGITS = 100

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89A-Fa-f]")


def read_body(text: str | bytes) -> object:
    """Returns the JSON document in a message body. Raises BodyUnreadable for anything else."""
    decoded = _decode(text)
    try:
        document: object = _DECODER.decode(decoded)
    except RecursionError:
        raise _too_deep_error() from None
    except json.JSONDecodeError as error:
        near = quote_value(decoded[max(error.pos - 20, 0) : error.pos + 20])
        raise BodyUnreadable(f"message is not JSON: {error.msg} at character {error.pos}, near {near}") from None
    # Walking a document costs more than reading it, and few can break a limit.
    if decoded.count("{") + decoded.count("[") > MAX_DEPTH or _ESCAPED_SURROGATE.search(decoded):
        _check_depth_and_text(document)
    return document


def _decode(text: str | bytes) -> str:
    try:
        raw = text.encode("utf-8") if isinstance(text, str) else text
        decoded = text if isinstance(text, str) else raw.decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        raise BodyUnreadable(f"message is not UTF-8: {error.reason} at position {error.start}") from None
    if len(raw) > MAX_BYTES:
        raise BodyUnreadable(f"message has {len(raw)} bytes; at most {MAX_BYTES} are read")
    return decoded


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # JSON readers disagree on which of two equal names counts, so identity and effect could come from different ones.
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise BodyUnreadable(f"message has the field {quote_value(twice)} twice in one object")
    return fields


def _refuse_constant(constant: str) -> NoReturn:
    raise BodyUnreadable(f"message contains {constant}, which is not a JSON number")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BodyUnreadable(f"message contains a number too large to read: {quote_value(digits)}")
    return number


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise BodyUnreadable(f"message contains an integer of {len(digits)} digits; at most {MAX_DIGITS} are read")
    return int(digits)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_build_object, parse_constant=_refuse_constant, parse_float=_parse_float, parse_int=_parse_int
)


def _check_depth_and_text(document: object) -> None:
    # Level by level, because recursion is what this guards against.
    level, depth = [document], 0
    while level:
        for node in level:
            if isinstance(node, str) and _LONE_SURROGATE.search(node):
                raise BodyUnreadable(f"message contains half a surrogate pair, which is not text: {quote_value(node)}")
        containers = [node for node in level if isinstance(node, dict | list)]
        depth += 1
        if containers and depth > MAX_DEPTH:
            raise _too_deep_error()
        level = [
            child
            for node in containers
            for child in ((*node.keys(), *node.values()) if isinstance(node, dict) else node)
        ]


def _too_deep_error() -> BodyUnreadable:
    return BodyUnreadable(f"message is nested deeper than {MAX_DEPTH} levels")

"""From a record of Python's logging to one line of JSON, whatever the record holds."""

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from kfm_pipelines.telemetry.logs.context import bound_fields
from kfm_pipelines.telemetry.logs.frames import format_frames
from kfm_pipelines.telemetry.logs.redact import Redactor
from kfm_pipelines.telemetry.traces.spans import context_of, current_span
from kfm_pipelines.text import WITHHELD, redact_coordinates

# What every line says itself; a field of the same name that comes along gets another one.
RESERVED_FIELDS = ("at", "level", "logger", "event", "error")
# An error that is told already, on a record that has no exception to tell it from.
ERROR_ATTRIBUTE = "told_error"
MAX_FIELDS = 30
MAX_VALUES = 20
MAX_LINE_LENGTH = 100_000
_MAX_NAME_LENGTH = 60
_MAX_NUMBER = 2**63

# What Python itself puts on a record, and structlog and Dagster for their own use.
_OMITTED_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message", "asctime", "taskName", "_record", "_from_structlog", "_logger", "_name", ERROR_ATTRIBUTE,
    "dagster_meta", "dagster_event", "dagster_event_batch_metadata",
}  # fmt: skip


class LogLineFormatter:
    """Makes lines of records, by structlog: it knows its own records and those of everybody else."""

    def __init__(self, redactor: Redactor) -> None:
        from structlog.stdlib import ProcessorFormatter

        self._redactor = redactor
        self._formatter = ProcessorFormatter(processors=[self._render])

    def format_line(self, record: logging.LogRecord) -> str:
        """Never raises: of a record that cannot be told only that is told."""
        try:
            return self._formatter.format(_with_message(record)) + "\n"
        except Exception as error:  # noqa: BLE001 - whatever somebody logs, work goes on
            untold = {"at": _rfc3339(datetime.now(UTC)), "level": "error", "logger": __name__}
            return _json({**untold, "event": "a record could not be told", "error": describe_error(error)}) + "\n"

    def _render(self, _logger: object, _method: str, event_dict: Mapping[str, Any]) -> str:
        fields = fields_of(event_dict["_record"], event_dict)
        line = _json({name: self._redact_value(value) for name, value in fields.items()})
        if len(line) <= MAX_LINE_LENGTH:
            return line
        kept = {
            name: self._redact_value(fields[name]) for name in (*RESERVED_FIELDS, *bound_fields()) if name in fields
        }
        return _json({**kept, "cut": f"{len(line)} characters"})

    def _redact_value(self, value: object) -> object:
        try:
            return to_json_value(value, self._redactor)
        except Exception:  # noqa: BLE001 - an object may do anything when it is looked at
            return _class_of(value)


def fields_of(record: logging.LogRecord, event_dict: Mapping[str, Any]) -> dict[str, object]:
    """What a line says, in this order: ours, what joins it with others, what came along, the error."""
    came = _extra_fields({**record.__dict__, **event_dict})
    fields: dict[str, object] = {
        "at": _rfc3339(datetime.fromtimestamp(record.created, UTC)),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event_dict.get("event"),
        **bound_fields(),
        **came,
    }
    span = context_of(current_span())
    if span is not None:
        fields.setdefault("trace_id", span.trace_hex)
    error = _exception(event_dict.get("exc_info"))
    if error is not None:
        fields["error"] = describe_error(error)
    elif hasattr(record, ERROR_ATTRIBUTE):
        fields["error"] = getattr(record, ERROR_ATTRIBUTE)
    return fields


def describe_error(error: BaseException) -> dict[str, object]:
    """Its class, what caused it, and where: what it says may quote data."""
    told: dict[str, object] = {"class": type(error).__name__, "frames": format_frames(error)}
    causes: list[str] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and len(causes) < MAX_VALUES:
        causes.append(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    return {**told, "causes": causes} if causes else told


def to_json_value(value: object, redactor: Redactor, depth: int = 2) -> object:
    """As JSON knows it, and without what must not be told. Of what is no plain value only the class is told: what an
    object shows of itself may be data."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _redact_number(value)
    if isinstance(value, str | date | PurePath | UUID | Enum):
        return redactor.redact(str(value))
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(one, redactor, depth - 1) for one in list(value)[:MAX_VALUES]]
    if depth and isinstance(value, dict):
        some = list(value.items())[:MAX_VALUES]
        return {_field_name(name): to_json_value(one, redactor, depth - 1) for name, one in some}
    return _class_of(value)


def _redact_number(value: float) -> object:
    """A number with many decimals may be a place, whatever it is called."""
    if isinstance(value, int):
        return int(value) if abs(value) < _MAX_NUMBER else _class_of(value)
    if not math.isfinite(value):
        return str(value)
    return float(value) if redact_coordinates(repr(float(value))) == repr(float(value)) else WITHHELD


def _class_of(value: object) -> str:
    return f"({type(value).__name__})"


def _with_message(record: logging.LogRecord) -> logging.LogRecord:
    """The record with its text made, which fails when the arguments do not fit or cannot be shown."""
    if isinstance(record.msg, dict) and hasattr(record, "_logger"):
        return record
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - an object may do anything when it is shown
        text = f"{_template(record)} (its arguments cannot be shown)"
    return logging.makeLogRecord({**record.__dict__, "msg": text, "args": None})


def _template(record: logging.LogRecord) -> str:
    return record.msg if isinstance(record.msg, str) else _class_of(record.msg)


def _extra_fields(event_dict: Mapping[str, Any]) -> dict[str, object]:
    """Fields of `extra=` or of structlog's call. Dagster and structlog say level and logger themselves; so do we."""
    came = {
        _field_name(name): value
        for name, value in event_dict.items()
        if name not in _OMITTED_FIELDS and name != "event"
    }
    return {(f"{name}_" if name in RESERVED_FIELDS else name): came[name] for name in list(came)[:MAX_FIELDS]}


def _field_name(name: object) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", str(name)[:_MAX_NAME_LENGTH]) or "_"


def _exception(exc_info: object) -> BaseException | None:
    """structlog gives an exception, three things as Python does, or True for the one that is handled now."""
    if exc_info is True:
        return sys.exception()
    error = exc_info[1] if isinstance(exc_info, tuple) and len(exc_info) == 3 else exc_info
    return error if isinstance(error, BaseException) else None


def _json(fields: Mapping[str, object]) -> str:
    """ASCII, so that nothing in it is anybody's end of a line."""
    return json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")

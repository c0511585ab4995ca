"""Turns a record of Python's logging into one line of JSON in the log, with the fields bound by `log_context`."""

import json
import logging
import math
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, TypedDict, Unpack
from uuid import UUID

from kfm_pipelines.settings import LogSettings
from kfm_pipelines.telemetry.line_files import AppendOnlyFile
from kfm_pipelines.telemetry.logs.redact import Redactor
from kfm_pipelines.telemetry.traces.spans import context_of, current_span
from kfm_pipelines.text import WITHHELD, redact_coordinates

LOG_FILE = "log.jsonl"
ROOT_LOGGER = "kfm_pipelines"
# Fields of every line; an extra field of the same name is renamed.
RESERVED_FIELDS = ("at", "level", "logger", "event", "error")
# A described error on a record without an exception.
ERROR_ATTRIBUTE = "kfm_error"
MAX_FRAMES = 20
MAX_FIELDS = 30
MAX_VALUES = 20
MAX_LINE_LENGTH = 100_000
_MAX_NAME_LENGTH = 60
_MAX_NUMBER = 2**63

# Set on records by Python, structlog and Dagster for their own use.
_OMITTED_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message", "asctime", "taskName", "_record", "_from_structlog", "_logger", "_name", ERROR_ATTRIBUTE,
    "dagster_meta", "dagster_event", "dagster_event_batch_metadata",
}  # fmt: skip


class CorrelationFields(TypedDict, total=False):
    """Fields that relate log lines to each other, the database, the spans and the queue."""

    message_id: str | None
    object_key: str | None
    run_id: str | None
    idempotency_key: str | None
    trace_id: str | None
    event_id: str | None
    replay_id: str | None
    dataset: str | None
    stage: str | None
    queue: str | None


def log_context(**fields: Unpack[CorrelationFields]) -> AbstractContextManager[None]:
    from structlog.contextvars import bound_contextvars

    return bound_contextvars(**{name: value for name, value in fields.items() if value is not None})


def _bound_fields() -> dict[str, object]:
    from structlog.contextvars import get_contextvars

    bound = get_contextvars()
    return {name: bound[name] for name in CorrelationFields.__annotations__ if name in bound}


class LogLineFormatter:
    """Formats records of Python's logging and of structlog."""

    def __init__(self, redactor: Redactor) -> None:
        from structlog.stdlib import ProcessorFormatter

        self._redactor = redactor
        self._formatter = ProcessorFormatter(processors=[self._render])

    def format_line(self, record: logging.LogRecord) -> str:
        """Never raises: logs the failure instead of a record that cannot be formatted."""
        try:
            return self._formatter.format(_with_message(record)) + "\n"
        except Exception as error:  # noqa: BLE001 - logging never stops a run
            fields = {"at": _rfc3339(datetime.now(UTC)), "level": "error", "logger": __name__}
            return _json({**fields, "event": "a record could not be logged", "error": describe_error(error)}) + "\n"

    def _render(self, _logger: object, _method: str, event_dict: Mapping[str, Any]) -> str:
        fields = fields_of(event_dict["_record"], event_dict)
        line = _json({name: self._redact_value(value) for name, value in fields.items()})
        if len(line) <= MAX_LINE_LENGTH:
            return line
        kept = (name for name in (*RESERVED_FIELDS, *_bound_fields()) if name in fields)
        return _json({**{name: self._redact_value(fields[name]) for name in kept}, "cut": f"{len(line)} characters"})

    def _redact_value(self, value: object) -> object:
        try:
            return to_json_value(value, self._redactor)
        except Exception:  # noqa: BLE001 - an object may do anything when converted
            return _class_of(value)


class LogFile(logging.Handler):
    """Appends records to the log. A line that cannot be written is counted and reported later."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self.settings = settings
        self.min_level: int = logging.getLevelNamesMapping()[settings.level.upper()]
        self._file = AppendOnlyFile(settings.folder / LOG_FILE)
        self._line_formatter = LogLineFormatter(Redactor.from_secrets(settings.secrets))
        self._lost_lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Skips what libraries log below WARNING, and what Dagster also passes to its run log handler."""
        is_ours = record.name == ROOT_LOGGER or record.name.startswith(f"{ROOT_LOGGER}.")
        min_level = self.min_level if is_ours else max(self.min_level, logging.WARNING)
        if record.levelno >= min_level and not hasattr(record, "dagster_meta"):
            self.append(record)

    def append(self, record: logging.LogRecord) -> None:
        line = self._line_formatter.format_line(record)
        try:
            if self._lost_lines:
                lines = "1 line" if self._lost_lines == 1 else f"{self._lost_lines} lines"
                text = f"{lines} before this one could not be written"
                loss = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (), None)
                self._file.write(self._line_formatter.format_line(loss))
                self._lost_lines = 0
            self._file.write(line)
        except OSError:
            self._lost_lines += 1

    def close(self) -> None:
        """Python closes handlers when logging is reconfigured, and uses them again: the next line reopens the file."""
        self._file.close()
        super().close()


def fields_of(record: logging.LogRecord, event_dict: Mapping[str, Any]) -> dict[str, object]:
    """Returns the fields of a line in order: reserved, bound, extra, error."""
    fields: dict[str, object] = {
        "at": _rfc3339(datetime.fromtimestamp(record.created, UTC)),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event_dict.get("event"),
        **_bound_fields(),
        **_extra_fields({**record.__dict__, **event_dict}),
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
    """Returns the error's class, causes and frames, without messages, which may quote data."""
    description: dict[str, object] = {"class": type(error).__name__, "frames": format_frames(error)}
    causes: list[str] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and len(causes) < MAX_VALUES:
        causes.append(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    return {**description, "causes": causes} if causes else description


def format_traceback(error: BaseException) -> str:
    """Returns one line per frame, innermost last, without values or absolute paths."""
    return "\n".join(format_frames(error))


def format_frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return [format_frame(frame.filename, frame.lineno, frame.name) for frame in frames]


def format_frame(filename: str, line: int | str | None, function: str) -> str:
    """Frames outside this package are named by their file name only."""
    parts = Path(filename).parts
    is_ours = "kfm_pipelines" in parts
    path = "/".join(parts[parts.index("kfm_pipelines") :]) if is_ours else parts[-1] if parts else "?"
    return f"{path}:{line} {function}"


def to_json_value(value: object, redactor: Redactor, depth: int = 2) -> object:
    """Converts a value to redacted JSON. Only plain values are quoted, because the repr of others may hold data."""
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
    """Withholds numbers with many decimals, which may be coordinates."""
    if isinstance(value, int):
        return int(value) if abs(value) < _MAX_NUMBER else _class_of(value)
    if not math.isfinite(value):
        return str(value)
    return float(value) if redact_coordinates(repr(float(value))) == repr(float(value)) else WITHHELD


def _class_of(value: object) -> str:
    return f"({type(value).__name__})"


def _with_message(record: logging.LogRecord) -> logging.LogRecord:
    """Returns the record with its message formatted, even if the arguments do not fit or cannot be formatted."""
    if isinstance(record.msg, dict) and hasattr(record, "_logger"):
        return record
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - an object may do anything when formatted
        template = record.msg if isinstance(record.msg, str) else _class_of(record.msg)
        text = f"{template} (its arguments cannot be formatted)"
    return logging.makeLogRecord({**record.__dict__, "msg": text, "args": None})


def _extra_fields(event_dict: Mapping[str, Any]) -> dict[str, object]:
    """Returns the fields given by `extra=` or in a structlog call."""
    extra = {
        _field_name(name): value
        for name, value in event_dict.items()
        if name not in _OMITTED_FIELDS and name != "event"
    }
    return {(f"{name}_" if name in RESERVED_FIELDS else name): extra[name] for name in list(extra)[:MAX_FIELDS]}


def _field_name(name: object) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", str(name)[:_MAX_NAME_LENGTH]) or "_"


def _exception(exc_info: object) -> BaseException | None:
    """`exc_info` is an exception, a tuple as in Python's logging, or True for the one being handled."""
    if exc_info is True:
        return sys.exception()
    error = exc_info[1] if isinstance(exc_info, tuple) and len(exc_info) == 3 else exc_info
    return error if isinstance(error, BaseException) else None


def _json(fields: Mapping[str, object]) -> str:
    """ASCII only, so that no character is taken for a line break."""
    return json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")

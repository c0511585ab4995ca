"""The log handler that `dagster.yaml` names: it copies log records of runs into our log.

Dagster keeps all events itself. Our log gets the start and end of runs and steps, failures, and `context.log` lines.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

from dagster import DagsterEvent, DagsterEventType
from dagster_shared.error import SerializableErrorInfo

from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.orchestration import dagster_internals as internals
from kfm_pipelines.orchestration.names import STAGES
from kfm_pipelines.orchestration.tags import DATASET_TAG, REPLAY_TAG
from kfm_pipelines.settings import load_log_settings
from kfm_pipelines.telemetry.logs.lines import ERROR_ATTRIBUTE, MAX_FRAMES, LogFile, format_frame

# Logged at INFO or higher; a run over many keys has thousands of other events.
ALWAYS_LOGGED = {
    *(DagsterEventType[f"RUN_{name}"] for name in ("START", "SUCCESS", "FAILURE", "CANCELING", "CANCELED")),
    *(DagsterEventType[f"STEP_{name}"] for name in ("START", "SUCCESS", "FAILURE", "SKIPPED")),
}
_FRAME = re.compile(r'\s*File "([^"\n]*)", line (\d+), in ([^\n]*)')


class RunLogs(logging.Handler):
    """Finds its file from the environment alone, because Dagster creates it before our services are open."""

    def __init__(self) -> None:
        super().__init__()
        self._log = _open_log()

    def emit(self, record: logging.LogRecord) -> None:
        if self._log is None:
            return
        try:
            line = convert_record(record, self._log.min_level)
        except Exception:  # noqa: BLE001 - a future Dagster may log in another form; runs must go on
            line = _build_record(record.levelno, "a log record of a run could not be converted", {"job": None})
        if line is not None:
            self._log.append(line)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        super().close()


def convert_record(record: logging.LogRecord, min_level: int = logging.NOTSET) -> logging.LogRecord | None:
    """Converts a record of Dagster without its message, which repeats the error and may quote data. Returns None below
    the level."""
    meta: Mapping[str, Any] = record.dagster_meta  # type: ignore[attr-defined]
    event: DagsterEvent | None = meta["dagster_event"]
    always = event is not None and event.event_type in ALWAYS_LOGGED
    level = max(record.levelno, logging.INFO) if always else record.levelno
    if level < min_level:
        return None
    fields = {**_run_fields(meta, level), **(_event_fields(event) if event else {})}
    fields |= {"created": record.created, "exc_info": record.exc_info}
    return _build_record(level, meta["orig_message"], fields)


def _build_record(level: int, text: str, fields: Mapping[str, object]) -> logging.LogRecord:
    base = {"name": "dagster", "levelno": level, "levelname": logging.getLevelName(level), "msg": text}
    return logging.makeLogRecord({**{name: value for name, value in fields.items() if value is not None}, **base})


def _run_fields(meta: Mapping[str, Any], level: int) -> dict[str, object]:
    """Adds the ends of a range to lines about the run and to problems; for others the run id is enough."""
    tags: Mapping[str, str] = meta["job_tags"]
    step: str | None = meta["step_key"]
    last = step.rpartition("__")[2] if step else None
    ends = tags if step is None or level >= logging.WARNING else {}
    return {
        "run_id": meta["run_id"],
        "job": meta["job_name"],
        "step": step,
        "stage": last if last in STAGES else None,
        "dataset": tags.get(DATASET_TAG),
        "replay_id": tags.get(REPLAY_TAG),
        "partition": tags.get(internals.PARTITION_NAME_TAG),
        "first_partition": ends.get(internals.ASSET_PARTITION_RANGE_START_TAG),
        "last_partition": ends.get(internals.ASSET_PARTITION_RANGE_END_TAG),
    }


def _event_fields(event: DagsterEvent) -> dict[str, object]:
    error = getattr(event.event_specific_data, "error", None)
    fields = {
        "dagster_event_type": event.event_type.name,
        "asset": event.asset_key.to_user_string() if event.asset_key else None,
        "partition": event.partition,
        ERROR_ATTRIBUTE: _error_fields(error) if error else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _error_fields(error: SerializableErrorInfo) -> dict[str, object]:
    """Returns the same fields as `telemetry.logs.lines` does, with the frames of the root cause."""
    chain = [error]
    while (cause := chain[-1].cause or chain[-1].context) and len(chain) < MAX_FRAMES:
        chain.append(cause)
    frames = [format_frame(*found.groups()) for line in chain[-1].stack if (found := _FRAME.match(line))]
    fields: dict[str, object] = {"class": error.cls_name, "frames": frames[-MAX_FRAMES:]}
    return {**fields, "causes": [one.cls_name for one in chain[1:]]} if chain[1:] else fields


def _open_log() -> LogFile | None:
    try:
        settings = load_log_settings()
    except SettingsInvalid:
        return None  # reported when the services are opened
    return LogFile(settings) if settings.level != "off" else None

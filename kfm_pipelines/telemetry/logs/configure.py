"""The log of this machine: one JSON object a line, of all its processes, for people with `jq` and for collectors.

Code logs as usual, with Python's logging. Belongs here: what is kept and where. What a line says is in `log_lines`.
"""

import logging
import threading

from kfm_pipelines.settings import LogSettings, Settings
from kfm_pipelines.telemetry.append_only import AppendOnlyFile
from kfm_pipelines.telemetry.logs.context import log_context
from kfm_pipelines.telemetry.logs.lines import ERROR_ATTRIBUTE, LogLineFormatter, describe_error
from kfm_pipelines.telemetry.logs.redact import Redactor

__all__ = ["LogFile", "configure_logs", "error_fields", "log_context"]

LOG_FILE = "log.jsonl"
ROOT_LOGGER = "kfm_pipelines"

_configuring = threading.Lock()


class LogFile(logging.Handler):
    """Appends records to the log. Whatever goes wrong with that stops nothing."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self.settings = settings
        self.min_level: int = logging.getLevelNamesMapping()[settings.level.upper()]
        self._file = AppendOnlyFile(settings.folder / LOG_FILE)
        self._line_formatter = LogLineFormatter(Redactor.from_secrets(settings.secrets))
        self._lost_lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Of libraries only what is wrong, and nothing that Dagster gives to handlers of runs as well."""
        ours = record.name == ROOT_LOGGER or record.name.startswith(f"{ROOT_LOGGER}.")
        least = self.min_level if ours else max(self.min_level, logging.WARNING)
        if record.levelno >= least and not hasattr(record, "dagster_meta"):
            self.append(record)

    def append(self, record: logging.LogRecord) -> None:
        line = self._line_formatter.format_line(record)
        try:
            if self._lost_lines:
                self._file.write(self._line_formatter.format_line(_loss_record(self._lost_lines)))
                self._lost_lines = 0
            self._file.write(line)
        except OSError:
            self._lost_lines += 1

    def close(self) -> None:
        """Python closes handlers whenever somebody configures logging anew, and uses them on: the next line opens the
        file again."""
        self._file.close()
        super().close()


def configure_logs(settings: Settings) -> None:
    """Have everything that this process logs from now on in the log of its home. Once or often, it is one handler."""
    wanted = settings.logs
    root = logging.getLogger()
    with _configuring:
        present = [handler for handler in root.handlers if isinstance(handler, LogFile)]
        if [handler.settings for handler in present] == [wanted]:
            return
        for handler in present:
            root.removeHandler(handler)
            handler.close()
        if wanted.level != "off":
            root.addHandler(LogFile(wanted))
            logging.getLogger(ROOT_LOGGER).setLevel(wanted.level.upper())


def error_fields(error: BaseException) -> dict[str, object]:
    """To be given as `extra=`: our log tells of the error, other handlers nothing. With `exc_info` they would show what
    it says, which may quote data."""
    return {ERROR_ATTRIBUTE: describe_error(error)}


def _loss_record(lines: int) -> logging.LogRecord:
    said = "%d lines before this one could not be written"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (lines,), None)

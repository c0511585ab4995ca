"""The log of this machine: one JSON object a line, of all its processes, for people with `jq` and for collectors.

Code logs as usual, with Python's logging. Belongs here: what is kept and where. What a line says is in `log_lines`.
"""

import logging
import threading

from kfm_pipelines.settings import LogSettings, Settings
from kfm_pipelines.telemetry.append_only import AppendOnly
from kfm_pipelines.telemetry.logs.context import joined
from kfm_pipelines.telemetry.logs.lines import TOLD_ERROR, Lines, error_told
from kfm_pipelines.telemetry.logs.redact import Masking

__all__ = ["LogFile", "configure_logs", "joined", "of_error"]

LOG_FILE = "log.jsonl"
OURS = "kfm_pipelines"

_configuring = threading.Lock()


class LogFile(logging.Handler):
    """Appends records to the log. Whatever goes wrong with that stops nothing."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self.settings = settings
        self.min_level: int = logging.getLevelNamesMapping()[settings.level.upper()]
        self._file = AppendOnly(settings.folder / LOG_FILE)
        self._line_formatter = Lines(Masking.from_secrets(settings.secrets))
        self._lost_lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Of libraries only what is wrong, and nothing that Dagster gives to handlers of runs as well."""
        ours = record.name == OURS or record.name.startswith(f"{OURS}.")
        least = self.min_level if ours else max(self.min_level, logging.WARNING)
        if record.levelno >= least and not hasattr(record, "dagster_meta"):
            self.append(record)

    def append(self, record: logging.LogRecord) -> None:
        line = self._line_formatter.format_line(record)
        try:
            if self._lost_lines:
                self._file.write(self._line_formatter.format_line(_loss(self._lost_lines)))
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
            logging.getLogger(OURS).setLevel(wanted.level.upper())


def of_error(error: BaseException) -> dict[str, object]:
    """To be given as `extra=`: our log tells of the error, other handlers nothing. With `exc_info` they would show what
    it says, which may quote data."""
    return {TOLD_ERROR: error_told(error)}


def _loss(lines: int) -> logging.LogRecord:
    said = "%d lines before this one could not be written"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (lines,), None)

"""The log file of a home: one JSON object per line, shared by all its processes. Code logs with Python's logging."""

import logging
import threading

from kfm_pipelines.settings import LogSettings, Settings
from kfm_pipelines.telemetry.append_only import AppendOnlyFile
from kfm_pipelines.telemetry.logs.lines import ERROR_ATTRIBUTE, LogLineFormatter, describe_error
from kfm_pipelines.telemetry.logs.redact import Redactor

LOG_FILE = "log.jsonl"
ROOT_LOGGER = "kfm_pipelines"

_configuring = threading.Lock()


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


def configure_logs(settings: Settings) -> None:
    """Sends everything this process logs to the log of its home. Repeated calls keep one handler."""
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
    """Returns the `extra=` that describes an error in our log only, without its message, which may quote data."""
    return {ERROR_ATTRIBUTE: describe_error(error)}

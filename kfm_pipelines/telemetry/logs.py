"""The log of this machine: one JSON object a line, of all its processes, for people with `jq` and for collectors.

Code logs as usual, with Python's logging. Belongs here: what is kept and where. What a line says is in `log_lines`.
"""

import logging
import threading

from kfm_pipelines.settings import LogSettings, Settings
from kfm_pipelines.telemetry.append_only import AppendOnly
from kfm_pipelines.telemetry.joins import joined
from kfm_pipelines.telemetry.log_lines import Lines
from kfm_pipelines.telemetry.masking import Masking

__all__ = ["LogFile", "configure_logs", "joined"]

LOG_FILE = "log.jsonl"
OURS = "kfm_pipelines"

_configuring = threading.Lock()


class LogFile(logging.Handler):
    """Appends records to the log. Whatever goes wrong with that stops nothing."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self.settings = settings
        self._file = AppendOnly(settings.folder / LOG_FILE)
        self._lines = Lines(Masking.of(settings.secrets))
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_kept(record):
            return
        line = self._lines.line(record)
        try:
            if self._lost:
                self._file.write(self._lines.line(_loss(self._lost)))
                self._lost = 0
            self._file.write(line)
        except OSError:
            self._lost += 1

    def _is_kept(self, record: logging.LogRecord) -> bool:
        """Of libraries only what is wrong; and nothing that Dagster tells its own handlers as well."""
        own = record.name == OURS or record.name.startswith(f"{OURS}.")
        return (own or record.levelno >= logging.WARNING) and not hasattr(record, "dagster_meta")

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


def _loss(lines: int) -> logging.LogRecord:
    said = "%d lines before this one could not be written"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (lines,), None)

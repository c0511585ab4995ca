"""The log file of a home: one JSON object per line, shared by all its processes. Code logs with Python's logging."""

import logging
import threading

from kfm_pipelines.settings import Settings
from kfm_pipelines.telemetry.logs.lines import ERROR_ATTRIBUTE, ROOT_LOGGER, LogFile, describe_error

_configuring = threading.Lock()


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

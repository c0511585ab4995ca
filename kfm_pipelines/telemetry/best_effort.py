"""Telling stops nothing: whatever goes wrong with it is counted and told of, and the work it was about goes on."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kfm_pipelines.telemetry.logs.configure import error_fields

if TYPE_CHECKING:
    from kfm_pipelines.telemetry.process import Telemetry

log = logging.getLogger(__name__)


@contextmanager
def best_effort(telemetry: "Telemetry", what: str, signal: str = "record") -> Iterator[None]:
    """Around what is only told. `what` could not be told then, and `signal` is what it is counted under."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the work it is about is done, or has to be done
        log.warning("%s could not be told", what, extra=error_fields(error))
        with suppress(Exception):
            telemetry.metrics.count("telemetry_dropped_total", signal=signal)


class OneTimeWarning:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged = False

    def log(self, text: str, *args: object) -> None:
        if not self._logged:
            self._logged = True
            self._log.warning(text, *args)

"""Datasets that somebody has killed: nothing is wrong, but whoever wonders why nothing comes should read it here."""

from collections.abc import Iterator

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.operations.diagnosis.finding import Finding
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state import kills
from kfm_pipelines.state.database import is_current


def switches(workshop: Workshop) -> Iterator[Finding]:
    try:
        if not is_current(workshop.database):
            return  # the schema's own finding says so
    except ServiceUnavailable:
        return  # and so does that of the database
    for killed, keys in kills.waiting(workshop.database):
        found = f"killed since {killed.at:%Y-%m-%d %H:%M:%SZ} by {killed.actor}: {killed.reason}; {keys} keys wait"
        yield Finding(f"kill switch of {killed.dataset}", ok=True, found=found)

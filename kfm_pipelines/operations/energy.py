"""What work cost, entered into the ledger of energy."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.energy import EnergyEntry, enter
from kfm_pipelines.telemetry.usage import Usage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """A stage of an attempt at a key; without an epoch, of a try without a claim; without a key, of a whole run."""

    stage: str
    key: str | None = None
    epoch: int | None = None


def enter_used(
    workshop: Workshop, run_id: str, used: Mapping[Work, Usage], *, dataset: str | None, replay: str | None = None
) -> list[EnergyEntry]:
    """Enter what was used; the entries, for whoever tells of them. The work is
    done, so one that cannot be entered is told of and stops nothing."""
    if not used:
        return []
    try:
        entries = [
            EnergyEntry(run_id, work.stage, usage, workshop.energy_of(usage), dataset, work.key, work.epoch, replay)
            for work, usage in used.items()
        ]
        enter(workshop.database, entries, workshop.coefficients_digest)
    except KfmError as error:
        log.warning("what run %s cost is not in the ledger: %s", run_id, error)
        workshop.telemetry.metrics.count("telemetry_dropped_total", signal="energy")
        return []
    return entries

"""What work cost, entered into the ledger of energy."""

from collections.abc import Mapping
from dataclasses import dataclass

from kfm_pipelines.operations.excusing import excused
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.energy import EnergyEntry, enter, enter_lost
from kfm_pipelines.telemetry.usage import Usage


@dataclass(frozen=True, slots=True)
class Work:
    """A stage of an attempt at a key; without an epoch, of a try without a claim; without a key, of a whole run."""

    stage: str
    key: str | None = None
    epoch: int | None = None


def enter_used(
    workshop: Workshop, run_id: str, used: Mapping[Work, Usage], *, dataset: str | None, replay: str | None = None
) -> list[EnergyEntry]:
    """Enter what was used; the entries, for whoever tells of them. The work is done, so one that cannot be entered is
    told of and stops nothing."""
    if not used:
        return []
    with excused(workshop.telemetry, "what work cost", "energy"):
        entries = [
            EnergyEntry(run_id, work.stage, usage, workshop.energy_of(usage), dataset, work.key, work.epoch, replay)
            for work, usage in used.items()
        ]
        enter(workshop.database, entries, workshop.coefficients_digest)
        return entries
    return []


def enter_what_was_lost(workshop: Workshop, dataset: str, key: str) -> None:
    """Of a key whose last run may have died: that it cost something, and nobody knows how much."""
    with excused(workshop.telemetry, "that a run died", "energy"):
        enter_lost(workshop.database, key, dataset, workshop.coefficients_digest)

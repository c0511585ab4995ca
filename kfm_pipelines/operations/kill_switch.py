"""The kill switch as people move it, and the one thing that is still done for a dataset that is killed."""

from functools import partial
from uuid import uuid4

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import DatasetUnknown, KfmError, OwnershipLost, SwitchRefused
from kfm_pipelines.events.quoting import one_line, quoted
from kfm_pipelines.operations import release
from kfm_pipelines.operations.governance import governance_of
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.plain_text import storable
from kfm_pipelines.state import kills, transactions, wal
from kfm_pipelines.state.claims import Claims
from kfm_pipelines.state.wal import Step

LONGEST_REASON = 500
LONGEST_NAME = 100
COMPLETED_AT_ONCE = 50


def kill(workshop: Workshop, dataset: str, by: str, reason: str) -> None:
    """When this returns nothing of the dataset is published any more, whatever is under way."""
    _refuse_unknown(workshop, dataset)
    kills.kill(workshop.database, dataset, _name(by), _reason(reason))


def unkill(workshop: Workshop, dataset: str, by: str, reason: str) -> bool:
    """Let the dataset go on with all that is due; False when it was not killed."""
    _refuse_unknown(workshop, dataset)
    return kills.unkill(workshop.database, dataset, _name(by), _reason(reason))


def complete_seen(workshop: Workshop) -> list[str]:
    """Complete the publications of killed datasets that were interrupted after their swap: readers see them, so the log
    has to say so. One that was interrupted before it stays as it is until the dataset is released. Return what could
    not be completed and why."""
    problems = []
    for name, key in kills.interrupted(workshop.database, COMPLETED_AT_ONCE):
        try:
            if name in workshop.datasets:
                _complete_if_seen(workshop, workshop.datasets[name], key)
        except OwnershipLost:
            continue  # somebody else is at it
        except KfmError as error:
            problems.append(f"publication of {key}: {error}")
    return problems


def _complete_if_seen(workshop: Workshop, dataset: Dataset, key: str) -> None:
    with workshop.database.transaction() as connection:
        intent = wal.last_entry(connection, key)
    if intent is None or intent.step is not Step.PUBLISH or not release.is_seen(workshop, dataset, intent):
        return
    owner = f"completion-{uuid4()}"
    claims = Claims(workshop.database, owner, workshop.settings.lease_seconds, dataset=dataset.dataset)
    claim = claims.take(key)
    done = False
    try:
        with claims.kept_alive():
            # Read again now that the key is ours: somebody may have been quicker.
            intent = transactions.close_abandoned(workshop.database, claim)
            governance = partial(governance_of, workshop, dataset)
            done = intent is not None and release.finish(workshop, dataset, claim, intent, governance)
    finally:
        if not done:
            delay = workshop.retries.delay(claim.attempts, workshop.random)
            reason = "its publication could not be completed"
            transactions.hand_back(workshop.database, claim, delay=delay, reason=reason, count_attempt=False)


def _refuse_unknown(workshop: Workshop, dataset: str) -> None:
    """A name that is mistyped would stop nothing. What has keys is known even if the declarations cannot be read."""
    if kills.is_known(workshop.database, storable(dataset)) or dataset in workshop.datasets:
        return
    known = ", ".join(workshop.datasets) or "none"
    raise DatasetUnknown(f"dataset {quoted(dataset)} is not declared and has no keys; declared: {known}")


def _reason(text: str) -> str:
    return _said(text, LONGEST_REASON, "say why: whoever finds the dataset like this has nothing else to go by")


def _name(text: str) -> str:
    return _said(text, LONGEST_NAME, "say who moves the switch: others will want to ask")


def _said(text: str, longest: int, otherwise: str) -> str:
    said = one_line(storable(text), longest).strip()
    if not said:
        raise SwitchRefused(otherwise)
    return said

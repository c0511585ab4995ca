"""Completes publications of killed datasets that were interrupted after their swap.

Readers see them, so the log has to record them. Publications interrupted before their swap wait for `kfm unkill`.
"""

from functools import partial
from uuid import uuid4

from kfm_pipelines.care.governance import governance_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError, OwnershipLost
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish import release
from kfm_pipelines.state import kill_switch, transactions, wal
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.state.wal import Step

MAX_COMPLETED_PER_CALL = 50


def complete_visible_publications(services: Services) -> list[str]:
    """Returns what could not be completed, and why."""
    problems = []
    for name, key in kill_switch.interrupted_publications(services.database, MAX_COMPLETED_PER_CALL):
        try:
            if name in services.datasets:
                _complete_if_visible(services, services.datasets[name], key)
        except OwnershipLost:
            continue  # another worker has taken it
        except KfmError as error:
            problems.append(f"publication of {key}: {error}")
    return problems


def _complete_if_visible(services: Services, dataset: Dataset, key: str) -> None:
    with services.database.transaction() as connection:
        intent = wal.last_entry(connection, key)
    if intent is None or intent.step is not Step.PUBLISH or not release.is_visible(services, dataset, intent):
        return
    owner = f"completion-{uuid4()}"
    claims = Claims(services.database, owner, services.settings.lease_seconds, dataset=dataset.dataset)
    claim = claims.take(key)
    done = False
    try:
        with claims.keep_alive():
            # Read again under our claim: another worker may have completed it.
            intent = transactions.close_abandoned(services.database, claim)
            governance = partial(governance_of, services, dataset)
            done = intent is not None and release.finish(services, dataset, claim, intent, governance)
    finally:
        if not done:
            delay = services.retries.delay(claim.attempts, services.random)
            reason = "its publication could not be completed"
            transactions.hand_back(services.database, claim, delay=delay, reason=reason, count_attempt=False)

"""Reviews: a staged release waits until somebody with authority over the data has signed for exactly these bytes."""

from pathlib import Path

from kfm_pipelines.care.governance import Oversight, oversight_of
from kfm_pipelines.care.policies import refuse_unless_current
from kfm_pipelines.care.review import tables
from kfm_pipelines.care.review.tables import Decision, PendingReview
from kfm_pipelines.care.signatures import Signature
from kfm_pipelines.errors import ReviewRefused
from kfm_pipelines.services import Services
from kfm_pipelines.state import transactions
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import clear_work

MIN_DIGEST_LENGTH = 12


def is_approved(oversight: Oversight, key: str, release_digest: str) -> bool:
    """Whether this release may go out: nobody has to be asked, or somebody with authority said yes to these bytes and
    nobody said no. ReviewRefused when somebody did: a no is final for these bytes, or an old yes could come back."""
    if oversight.dataset.review == "none":
        return True
    decisions = tables.decisions_about(oversight.services.database, key, release_digest)
    for decision in decisions:
        _refuse_forged(decision, oversight)
        if decision.decision == "rejected":
            raise rejection_error(decision)
    return bool(decisions)


def approve(services: Services, key: str, digest: str, private_key: Path, reason: str) -> PendingReview:
    waiting = _check_digest(tables.pending_review(services.database, key), digest)
    oversight = oversight_of(services, services.datasets[waiting.dataset])
    refuse_unless_current(oversight.policy, services.today())
    signed = _sign_decision(oversight, waiting, "approved", private_key, reason)
    tables.approve(services.database, waiting, signed, oversight.policy.name)
    return waiting


def reject(services: Services, key: str, digest: str, private_key: Path, reason: str) -> PendingReview:
    """Say no: the key fails with the reason, and what was staged is removed. Can be said until a run has taken up what
    was approved, and whatever state the policy is in."""
    waiting = _check_digest(tables.pending_review(services.database, key, also_approved=True), digest)
    dataset = services.datasets[waiting.dataset]
    oversight = oversight_of(services, dataset)
    signed = _sign_decision(oversight, waiting, "rejected", private_key, reason)
    claim = tables.reject(services.database, waiting, signed, oversight.policy.name, services.settings.lease_seconds)
    clear_work(services.store, Layout(dataset.pipeline), key)
    error = ReviewRefused(f"{key}: refused by {signed.holder}: {reason}")
    transactions.fail(services.database, claim, "review", error, retry_in=services.retries.cap_seconds)
    return waiting


def rejection_error(decision: Decision) -> ReviewRefused:
    reason = str(decision.signed.statement.get("reason", ""))
    return ReviewRefused(f"{decision.key}: refused by {decision.signed.holder}: {reason}")


def _check_digest(pending: PendingReview, digest: str) -> PendingReview:
    """The waiting release, if it is the one that was looked at."""
    if len(digest) < MIN_DIGEST_LENGTH or not pending.release_digest.startswith(digest.lower()):
        known = pending.release_digest[:16]
        raise ReviewRefused(f"{pending.key}: release {known}… awaits review, not {digest[:16]!r}; look at it first")
    return pending


def _sign_decision(
    oversight: Oversight, pending: PendingReview, decision: str, private_key: Path, reason: str
) -> Signature:
    statement = {
        "statement": "review",
        "decision": decision,
        "key": pending.key,
        "release": pending.release_digest,
        "policy": oversight.policy.name,
        "reason": reason,
    }
    return oversight.sign(statement, private_key)


def _refuse_forged(decision: Decision, oversight: Oversight) -> None:
    said = {
        "statement": "review",
        "decision": decision.decision,
        "key": decision.key,
        "release": decision.release_digest,
    }
    oversight.refuse_forged(decision.signed, said, f"{decision.key}: the recorded review")

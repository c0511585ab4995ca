"""Reviews: a staged release waits until somebody with authority over the data has signed for exactly these bytes."""

from pathlib import Path
from typing import Any

from kfm_pipelines.care.authorities import Authority
from kfm_pipelines.care.signatures import Signed, read_private_key, sign
from kfm_pipelines.errors import ReviewRefused, SignatureRefused
from kfm_pipelines.operations.governance import Governance, governance_of
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.publish import clear_work
from kfm_pipelines.state import reviews, transactions
from kfm_pipelines.state.claims import Claims
from kfm_pipelines.state.reviews import Decision, Waiting
from kfm_pipelines.state.signed import Signature
from kfm_pipelines.stores import Layout

SHORTEST_DIGEST = 12


def is_approved(governance: Governance, key: str, release_digest: str) -> bool:
    """Whether this release may go out: nobody has to be asked, or somebody with authority said yes to these bytes.
    ReviewRefused when they said no."""
    if governance.dataset.review == "none":
        return True
    decision = reviews.last_decision(governance.workshop.database, key, release_digest)
    if decision is None:
        return False
    _refuse_forged(decision, governance.authority)
    if decision.decision == "rejected":
        raise _refusal(decision)
    return True


def approve(workshop: Workshop, key: str, digest: str, private_key: Path, reason: str) -> Waiting:
    waiting = _named(workshop, key, digest)
    governance = governance_of(workshop, workshop.datasets[waiting.dataset])
    signed = _signed(governance, waiting, "approved", private_key, reason)
    reviews.approve(workshop.database, waiting, signed, governance.policy.name)
    return waiting


def reject(workshop: Workshop, key: str, digest: str, private_key: Path, reason: str) -> Waiting:
    """Say no: the key fails with the reason, and what was staged is removed."""
    waiting = _named(workshop, key, digest)
    dataset = workshop.datasets[waiting.dataset]
    governance = governance_of(workshop, dataset)
    signed = _signed(governance, waiting, "rejected", private_key, reason)
    claim = Claims(workshop.database, f"review {signed.key_id}", workshop.settings.lease_seconds).take(key)
    reviews.reject(workshop.database, waiting, signed, governance.policy.name)
    clear_work(workshop.store, Layout(dataset.pipeline), key)
    decision = reviews.last_decision(workshop.database, key, waiting.release_digest)
    again_in = workshop.retries.cap_seconds
    refusal = _refusal(decision) if decision else ReviewRefused(f"{key}: refused")
    transactions.fail(workshop.database, claim, "review", refusal, again_in=again_in)
    return waiting


def sign_for(authority: Authority, statement: dict[str, Any], private_key: Path, workshop: Workshop) -> Signature:
    """Sign a statement with a key of the authority; SignatureRefused when it is none of theirs."""
    signed = sign(statement, read_private_key(private_key))
    holder = authority.holder_of(signed, workshop.today())
    return Signature(signed.statement, authority.authority, holder, signed.key_id, signed.signature)


def _named(workshop: Workshop, key: str, digest: str) -> Waiting:
    """The waiting release, if it is the one that was looked at."""
    waiting = reviews.waiting_review(workshop.database, key)
    if len(digest) < SHORTEST_DIGEST or not waiting.release_digest.startswith(digest.lower()):
        raise ReviewRefused(
            f"{key}: release {waiting.release_digest[:16]}… awaits review, not {digest[:16]!r}; look at it first"
        )
    return waiting


def _signed(governance: Governance, waiting: Waiting, decision: str, private_key: Path, reason: str) -> Signature:
    statement = {
        "statement": "review",
        "decision": decision,
        "key": waiting.key,
        "release": waiting.release_digest,
        "policy": governance.policy.name,
        "reason": reason,
    }
    return sign_for(governance.authority, statement, private_key, governance.workshop)


def _refuse_forged(decision: Decision, authority: Authority) -> None:
    """The row must be what was signed, by a key of the authority that counted on that day."""
    signed = decision.signed
    said = {"decision": decision.decision, "key": decision.key, "release": decision.release_digest}
    if signed.statement.get("statement") != "review" or any(
        signed.statement.get(name) != value for name, value in said.items()
    ):
        raise SignatureRefused(f"{decision.key}: the recorded review is not what was signed")
    authority.holder_of(Signed(signed.statement, signed.key_id, signed.signature), decision.at.date())


def _refusal(decision: Decision) -> ReviewRefused:
    reason = str(decision.signed.statement.get("reason", ""))
    return ReviewRefused(f"{decision.key}: refused by {decision.signed.holder}: {reason}")

"""Decides about staged releases and about exemptions from masking; each decision needs the authority's signature."""

from datetime import date
from pathlib import Path
from uuid import uuid4

from kfm_pipelines.care.governance import Oversight, governance_of, oversight_of
from kfm_pipelines.care.policies import refuse_unless_current
from kfm_pipelines.care.review import tables
from kfm_pipelines.care.review.tables import PendingReview
from kfm_pipelines.care.signatures import Signature
from kfm_pipelines.care.tables import Exemption, read_exemption, record_exemption, record_exemption_end
from kfm_pipelines.errors import ReviewRefused
from kfm_pipelines.services import Services
from kfm_pipelines.state import transactions
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import clear_work

MIN_DIGEST_LENGTH = 12
MAX_EXEMPTION_DAYS = 366


def approve(services: Services, key: str, digest: str, private_key: Path, reason: str) -> PendingReview:
    pending = _check_digest(tables.pending_review(services.database, key), digest)
    oversight = oversight_of(services, services.datasets[pending.dataset])
    refuse_unless_current(oversight.policy, services.today())
    signed = _sign_decision(oversight, pending, "approved", private_key, reason)
    tables.approve(services.database, pending, signed, oversight.policy.name)
    return pending


def reject(services: Services, key: str, digest: str, private_key: Path, reason: str) -> PendingReview:
    """Fails the key and removes what was staged, until a run claims it, and under an overdue policy too."""
    pending = _check_digest(tables.pending_review(services.database, key, also_approved=True), digest)
    dataset = services.datasets[pending.dataset]
    oversight = oversight_of(services, dataset)
    signed = _sign_decision(oversight, pending, "rejected", private_key, reason)
    claim = tables.reject(services.database, pending, signed, oversight.policy.name, services.settings.lease_seconds)
    clear_work(services.store, Layout(dataset.pipeline), key)
    error = ReviewRefused(f"{key}: refused by {signed.holder}: {reason}")
    transactions.fail(services.database, claim, "review", error, retry_in=services.retries.cap_seconds)
    return pending


def _check_digest(pending: PendingReview, digest: str) -> PendingReview:
    """Raises ReviewRefused unless the pending release is the one that was looked at."""
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


def grant_exemption(
    services: Services, dataset_name: str, key_prefix: str, until: date, private_key: Path, reason: str
) -> Exemption:
    """Grants an exemption from this version of the policy, for a year at most."""
    dataset = services.datasets[dataset_name]
    governance = governance_of(services, dataset)
    policy = governance.policy
    today = services.today()
    if policy.is_open:
        raise ReviewRefused(f"policy {policy.name} masks nothing, so there is nothing to exempt")
    if not today <= until or (until - today).days > MAX_EXEMPTION_DAYS:
        raise ReviewRefused(
            f"an exemption must end between today and {MAX_EXEMPTION_DAYS} days from now, not on {until}"
        )
    identifier = f"exempt-{uuid4().hex[:12]}"
    statement = {
        "statement": "exemption",
        "exemption": identifier,
        "dataset": dataset.dataset,
        "policy": policy.name,
        "keys": key_prefix,
        "until": until.isoformat(),
        "reason": reason,
    }
    signed = governance.oversight.sign(statement, private_key)
    given = Exemption(identifier, dataset.dataset, policy.name, key_prefix, until, signed)
    record_exemption(services.database, given)
    return given


def end_exemption(services: Services, identifier: str, private_key: Path, reason: str) -> Exemption:
    exemption = read_exemption(services.database, identifier)
    oversight = oversight_of(services, services.datasets[exemption.dataset])
    statement = {"statement": "exemption-end", "exemption": identifier, "reason": reason}
    signed = oversight.sign(statement, private_key)
    record_exemption_end(services.database, exemption, signed)
    return exemption

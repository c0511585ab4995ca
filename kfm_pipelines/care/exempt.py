"""Grants and ends exemptions: a dataset, or some of its keys, may be published unmasked for a while."""

from datetime import date
from pathlib import Path
from uuid import uuid4

from kfm_pipelines.care import tables
from kfm_pipelines.care.governance import governance_of, oversight_of
from kfm_pipelines.care.tables import Exemption
from kfm_pipelines.errors import ReviewRefused
from kfm_pipelines.services import Services

MAX_DAYS = 366


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
    if not today <= until or (until - today).days > MAX_DAYS:
        raise ReviewRefused(f"an exemption must end between today and {MAX_DAYS} days from now, not on {until}")
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
    tables.record_exemption(services.database, given)
    return given


def end_exemption(services: Services, identifier: str, private_key: Path, reason: str) -> Exemption:
    exemption = tables.read_exemption(services.database, identifier)
    oversight = oversight_of(services, services.datasets[exemption.dataset])
    statement = {"statement": "exemption-end", "exemption": identifier, "reason": reason}
    signed = oversight.sign(statement, private_key)
    tables.record_exemption_end(services.database, exemption, signed)
    return exemption

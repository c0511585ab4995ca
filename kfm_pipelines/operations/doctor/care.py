"""Policy, authority, secret and exemptions of each dataset. Only people can fix these."""

from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import TypeVar

from kfm_pipelines.care import tables
from kfm_pipelines.care.governance import Authority, Governance, Oversight, authorities_of, policy_of, policy_version
from kfm_pipelines.care.policies import Policy, refuse_if_mismatched
from kfm_pipelines.care.secrets import secret_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError, PolicyRefused
from kfm_pipelines.operations.doctor.finding import DoctorCheck, DoctorFinding
from kfm_pipelines.services import Services

Result = TypeVar("Result")

REVIEW_SOON_DAYS = 30
EXEMPTION_SOON_DAYS = 7


def care_checks(services: Services, *, has_schema: bool) -> Iterator[DoctorCheck]:
    for dataset in services.datasets.values():
        name = dataset.dataset
        yield f"policy of {name}", partial(_check_policy, services, dataset)
        policy = _try(partial(policy_of, services, dataset))
        if policy is None:
            continue
        yield f"rules for {name}", partial(_check_rules, services, dataset, policy, has_schema=has_schema)
        yield f"authority over {name}", partial(_check_authority, services, dataset, policy)
        if policy.key_id is not None:
            yield f"secret for {name}", partial(_check_secret, services, dataset, policy, has_schema=has_schema)
        authority = (_try(partial(authorities_of, services)) or {}).get(policy.authority)
        if has_schema and authority is not None:
            yield f"exemptions of {name}", partial(_check_exemptions, services, dataset, policy, authority)


def _try(read: Callable[[], Result]) -> Result | None:
    """Returns None on failure, which another check reports."""
    try:
        return read()
    except KfmError:
        return None


def _check_policy(services: Services, dataset: Dataset) -> Iterator[DoctorFinding]:
    policy, today = policy_of(services, dataset), services.today()
    check = f"policy of {dataset.dataset}"
    if not policy.is_decided:
        remedy = f"have {policy.authority} decide its sensitivity; until then nothing is published under it"
        yield DoctorFinding(check, ok=False, found=f"{policy.name}, undecided", remedy=remedy)
        return
    if today < policy.reviewed_on:
        found = f"{policy.name}, reviewed only on {policy.reviewed_on}"
        remedy = "correct reviewed_on; until that day nothing is published under it"
    else:
        soon = _deadline_note(policy.review_by, today, REVIEW_SOON_DAYS)
        found = f"{policy.name}, to be reviewed by {policy.review_by}{soon}"
        remedy = f"have {policy.authority} review it; until then nothing is published under it"
    yield DoctorFinding(check, ok=policy.reviewed_on <= today <= policy.review_by, found=found, remedy=remedy)


def _check_rules(services: Services, dataset: Dataset, policy: Policy, *, has_schema: bool) -> Iterator[DoctorFinding]:
    refuse_if_mismatched(policy, dataset)
    if has_schema:
        used = policy_version(policy, b"")
        tables.refuse_changed_rules(used, tables.known_versions(services.database, used))
    found = "nothing is masked" if policy.is_open else "they cover every column"
    yield DoctorFinding(f"rules for {dataset.dataset}", ok=True, found=found)


def _check_authority(services: Services, dataset: Dataset, policy: Policy) -> Iterator[DoctorFinding]:
    check = f"authority over {dataset.dataset}"
    authority, today = authorities_of(services).get(policy.authority), services.today()
    if authority is None:
        remedy = f"declare it in resources/authorities/{policy.authority}.yaml, or correct the policy's authority"
        yield DoctorFinding(check, ok=False, found=f"{policy.authority!r} is not declared", remedy=remedy)
        return
    valid = [key for key in authority.keys if key.valid_from <= today <= key.valid_until]
    found = f"{authority.name}, {len(valid)} of {len(authority.keys)} keys are valid today"
    remedy = (
        f"nobody can sign the reviews that releases await: create a key with `kfm review keygen {authority.authority}`"
        f" and add its public half to resources/authorities/{authority.authority}.yaml"
    )
    yield DoctorFinding(check, ok=bool(valid) or dataset.review == "none", found=found, remedy=remedy)


def _check_secret(services: Services, dataset: Dataset, policy: Policy, *, has_schema: bool) -> Iterator[DoctorFinding]:
    used = policy_version(policy, secret_of(services, policy.key_id or ""))
    known = tables.known_versions(services.database, used) if has_schema else []
    tables.refuse_changed_secret(used, known)
    before = any(one.key_id == policy.key_id for one in known)
    found = f"key {policy.key_id}, {'used before' if before else 'not used yet'}"
    yield DoctorFinding(f"secret for {dataset.dataset}", ok=True, found=found)


def _check_exemptions(
    services: Services, dataset: Dataset, policy: Policy, authority: Authority
) -> Iterator[DoctorFinding]:
    """Checks exemptions in force; those replaced by a newer one are skipped."""
    given = tables.exemptions_of(services.database, dataset.dataset)
    governance = Governance(Oversight(services, dataset, policy, authority), b"", given)
    for exemption in given:
        if governance.exemption_for(exemption.key_prefix) is exemption:
            yield _check_exemption(governance, exemption)


def _check_exemption(governance: Governance, exemption: tables.Exemption) -> DoctorFinding:
    check = f"exemption {exemption.id} of {exemption.dataset}"
    soon = _deadline_note(exemption.until, governance.oversight.services.today(), EXEMPTION_SOON_DAYS)
    try:
        governance.rules_for(exemption.key_prefix)
    except PolicyRefused as error:
        remedy = "its keys are not published: grant a new one with `kfm review exempt`, or end it with `kfm review end`"
        return DoctorFinding(check, ok=False, found=str(error), remedy=remedy)
    return DoctorFinding(check, ok=True, found=f"unmasked until {exemption.until}{soon}")


def _deadline_note(day: date, today: date, days: int) -> str:
    left = (day - today).days
    when = {0: "today", 1: "tomorrow"}.get(left, f"in {left} days")
    return f": soon, {when}" if 0 <= left <= days else ""

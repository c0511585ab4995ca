"""What each dataset is published under: policy, authority, secret and exemptions. All of it is for people to mend."""

from collections.abc import Callable, Iterator
from datetime import date
from functools import partial

from kfm_pipelines.care.governance import Authority, Governance, Oversight, authorities_of, policy_of, policy_version
from kfm_pipelines.care.policies import Policy, refuse_if_mismatched
from kfm_pipelines.care.secrets import secret_of
from kfm_pipelines.care.tables import (
    Exemption,
    exemptions_of,
    known_versions,
    refuse_changed_rules,
    refuse_changed_secret,
)
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError, PolicyRefused
from kfm_pipelines.operations.doctor.finding import DoctorFinding
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import is_current

REVIEW_SOON_DAYS = 30
EXEMPTION_SOON_DAYS = 7


def care_checks(services: Services) -> Iterator[tuple[str, Callable[[], Iterator[DoctorFinding]]]]:
    recorded = _has_current_schema(services)
    for dataset in services.datasets.values():
        name = dataset.dataset
        yield f"policy of {name}", partial(_check_policy, services, dataset)
        policy = _load_policy(services, dataset)
        if policy is None:
            continue
        yield f"rules for {name}", partial(_check_rules, services, dataset, policy, recorded=recorded)
        yield f"authority over {name}", partial(_check_authority, services, dataset, policy)
        if policy.key_id is not None:
            yield f"secret for {name}", partial(_check_secret, services, dataset, policy, recorded=recorded)
        authority = _find_authority(services, policy)
        if recorded and authority is not None:
            yield f"exemptions of {name}", partial(_check_exemptions, services, dataset, policy, authority)


def _has_current_schema(services: Services) -> bool:
    """Without a database or a schema, which others tell about, there is nothing to compare with."""
    try:
        return is_current(services.database)
    except KfmError:
        return False


def _load_policy(services: Services, dataset: Dataset) -> Policy | None:
    try:
        return policy_of(services, dataset)
    except KfmError:
        return None


def _find_authority(services: Services, policy: Policy) -> Authority | None:
    try:
        return authorities_of(services).get(policy.authority)
    except KfmError:
        return None


def _check_policy(services: Services, dataset: Dataset) -> Iterator[DoctorFinding]:
    policy, today = policy_of(services, dataset), services.today()
    check = f"policy of {dataset.dataset}"
    if today < policy.reviewed_on:
        found = f"{policy.name}, reviewed only on {policy.reviewed_on}"
        remedy = "correct reviewed_on; until that day nothing is published under it"
        yield DoctorFinding(check, ok=False, found=found, remedy=remedy)
        return
    yield DoctorFinding(
        check,
        ok=today <= policy.review_by,
        found=f"{policy.name}, to be reviewed by {policy.review_by}{_deadline_note(policy.review_by, today, REVIEW_SOON_DAYS)}",
        remedy=f"have {policy.authority} review it; until then nothing is published under it",
    )


def _check_rules(services: Services, dataset: Dataset, policy: Policy, *, recorded: bool) -> Iterator[DoctorFinding]:
    refuse_if_mismatched(policy, dataset)
    if recorded:
        used = policy_version(policy, b"")
        refuse_changed_rules(used, known_versions(services.database, used))
    found = "nothing is masked" if policy.is_open else "they say what becomes of every column"
    yield DoctorFinding(f"rules for {dataset.dataset}", ok=True, found=found)


def _check_authority(services: Services, dataset: Dataset, policy: Policy) -> Iterator[DoctorFinding]:
    check = f"authority over {dataset.dataset}"
    authority, today = authorities_of(services).get(policy.authority), services.today()
    if authority is None:
        remedy = f"declare it in resources/authorities/{policy.authority}.yaml, or correct the policy's authority"
        yield DoctorFinding(check, ok=False, found=f"nobody declared {policy.authority!r}", remedy=remedy)
        return
    counting = [key for key in authority.keys if key.valid_from <= today <= key.valid_until]
    yield DoctorFinding(
        check,
        ok=bool(counting) or dataset.review == "none",
        found=f"{authority.name}, {len(counting)} of {len(authority.keys)} keys count today",
        remedy=f"every release awaits a review that nobody can sign: make a key with `kfm review keygen"
        f" {authority.authority}` and add its public half to resources/authorities/{authority.authority}.yaml",
    )


def _check_secret(services: Services, dataset: Dataset, policy: Policy, *, recorded: bool) -> Iterator[DoctorFinding]:
    used = policy_version(policy, secret_of(services, policy.key_id or ""))
    known = known_versions(services.database, used) if recorded else []
    refuse_changed_secret(used, known)
    before = any(one.key_id == policy.key_id for one in known)
    found = f"key {policy.key_id}, {'the one used before' if before else 'not used yet'}"
    yield DoctorFinding(f"secret for {dataset.dataset}", ok=True, found=found)


def _check_exemptions(
    services: Services, dataset: Dataset, policy: Policy, authority: Authority
) -> Iterator[DoctorFinding]:
    """Those that decide about any key; one that a newer one has replaced does not."""
    given = exemptions_of(services.database, dataset.dataset)
    governance = Governance(Oversight(services, dataset, policy, authority), b"", given)
    for exemption in given:
        if governance.exemption_for(exemption.key_prefix) is exemption:
            yield _check_exemption(governance, exemption)


def _check_exemption(governance: Governance, exemption: Exemption) -> DoctorFinding:
    check = f"exemption {exemption.id} of {exemption.dataset}"
    soon = _deadline_note(exemption.until, governance.oversight.services.today(), EXEMPTION_SOON_DAYS)
    try:
        governance.rules_for(exemption.key_prefix)
    except PolicyRefused as error:
        remedy = "its keys are not published: give a new one with `kfm review exempt`, or end it with `kfm review end`"
        return DoctorFinding(check, ok=False, found=str(error), remedy=remedy)
    return DoctorFinding(check, ok=True, found=f"unmasked until {exemption.until}{soon}")


def _deadline_note(day: date, today: date, days: int) -> str:
    left = (day - today).days
    when = {0: "today", 1: "tomorrow"}.get(left, f"in {left} days")
    return f": soon, {when}" if 0 <= left <= days else ""

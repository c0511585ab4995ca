"""What each dataset is published under: policy, authority, secret and exemptions. All of it is for people to mend."""

from collections.abc import Callable, Iterator
from datetime import date
from functools import partial

from kfm_pipelines.care.authorities import Authority
from kfm_pipelines.care.exemptions import Exemption, exemptions_of
from kfm_pipelines.care.governance import Governance, Oversight, used_policy
from kfm_pipelines.care.policies import Policy, refuse_if_unsuited
from kfm_pipelines.care.policy_versions import known_versions, refuse_another_secret, refuse_changed_rules
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError, PolicyRefused
from kfm_pipelines.operations.doctor.finding import Finding
from kfm_pipelines.services import Workshop
from kfm_pipelines.state.database import is_current

REVIEW_SOON_DAYS = 30
EXEMPTION_SOON_DAYS = 7


def care_looks(workshop: Workshop) -> Iterator[tuple[str, Callable[[], Iterator[Finding]]]]:
    recorded = _has_records(workshop)
    for dataset in workshop.datasets.values():
        name = dataset.dataset
        yield f"policy of {name}", partial(_policy, workshop, dataset)
        policy = _loaded(workshop, dataset)
        if policy is None:
            continue
        yield f"rules for {name}", partial(_rules, workshop, dataset, policy, recorded=recorded)
        yield f"authority over {name}", partial(_authority, workshop, dataset, policy)
        if policy.key_id is not None:
            yield f"secret for {name}", partial(_secret, workshop, dataset, policy, recorded=recorded)
        authority = _known_authority(workshop, policy)
        if recorded and authority is not None:
            yield f"exemptions of {name}", partial(_exemptions, workshop, dataset, policy, authority)


def _has_records(workshop: Workshop) -> bool:
    """Without a database or a schema, which others tell about, there is nothing to compare with."""
    try:
        return is_current(workshop.database)
    except KfmError:
        return False


def _loaded(workshop: Workshop, dataset: Dataset) -> Policy | None:
    try:
        return workshop.policy(dataset)
    except KfmError:
        return None


def _known_authority(workshop: Workshop, policy: Policy) -> Authority | None:
    try:
        return workshop.authorities.get(policy.authority)
    except KfmError:
        return None


def _policy(workshop: Workshop, dataset: Dataset) -> Iterator[Finding]:
    policy, today = workshop.policy(dataset), workshop.today()
    check = f"policy of {dataset.dataset}"
    if today < policy.reviewed_on:
        found = f"{policy.name}, reviewed only on {policy.reviewed_on}"
        remedy = "correct reviewed_on; until that day nothing is published under it"
        yield Finding(check, ok=False, found=found, remedy=remedy)
        return
    yield Finding(
        check,
        ok=today <= policy.review_by,
        found=f"{policy.name}, to be reviewed by {policy.review_by}{_soon(policy.review_by, today, REVIEW_SOON_DAYS)}",
        remedy=f"have {policy.authority} review it; until then nothing is published under it",
    )


def _rules(workshop: Workshop, dataset: Dataset, policy: Policy, *, recorded: bool) -> Iterator[Finding]:
    refuse_if_unsuited(policy, dataset)
    if recorded:
        used = used_policy(policy, b"")
        refuse_changed_rules(used, known_versions(workshop.database, used))
    found = "nothing is masked" if policy.is_open else "they say what becomes of every column"
    yield Finding(f"rules for {dataset.dataset}", ok=True, found=found)


def _authority(workshop: Workshop, dataset: Dataset, policy: Policy) -> Iterator[Finding]:
    check = f"authority over {dataset.dataset}"
    authority, today = workshop.authorities.get(policy.authority), workshop.today()
    if authority is None:
        remedy = f"declare it in resources/authorities/{policy.authority}.yaml, or correct the policy's authority"
        yield Finding(check, ok=False, found=f"nobody declared {policy.authority!r}", remedy=remedy)
        return
    counting = [key for key in authority.keys if key.valid_from <= today <= key.valid_until]
    yield Finding(
        check,
        ok=bool(counting) or dataset.review == "none",
        found=f"{authority.name}, {len(counting)} of {len(authority.keys)} keys count today",
        remedy=f"every release awaits a review that nobody can sign: make a key with `kfm review keygen"
        f" {authority.authority}` and add its public half to resources/authorities/{authority.authority}.yaml",
    )


def _secret(workshop: Workshop, dataset: Dataset, policy: Policy, *, recorded: bool) -> Iterator[Finding]:
    used = used_policy(policy, workshop.care_secret(policy.key_id or ""))
    known = known_versions(workshop.database, used) if recorded else []
    refuse_another_secret(used, known)
    before = any(one.key_id == policy.key_id for one in known)
    found = f"key {policy.key_id}, {'the one used before' if before else 'not used yet'}"
    yield Finding(f"secret for {dataset.dataset}", ok=True, found=found)


def _exemptions(workshop: Workshop, dataset: Dataset, policy: Policy, authority: Authority) -> Iterator[Finding]:
    """Those that decide about any key; one that a newer one has replaced does not."""
    given = exemptions_of(workshop.database, dataset.dataset)
    governance = Governance(Oversight(workshop, dataset, policy, authority), b"", given)
    for exemption in given:
        if governance.exemption_of(exemption.key_prefix) is exemption:
            yield _exemption(governance, exemption)


def _exemption(governance: Governance, exemption: Exemption) -> Finding:
    check = f"exemption {exemption.id} of {exemption.dataset}"
    soon = _soon(exemption.until, governance.oversight.workshop.today(), EXEMPTION_SOON_DAYS)
    try:
        governance.of(exemption.key_prefix)
    except PolicyRefused as error:
        remedy = "its keys are not published: give a new one with `kfm review exempt`, or end it with `kfm review end`"
        return Finding(check, ok=False, found=str(error), remedy=remedy)
    return Finding(check, ok=True, found=f"unmasked until {exemption.until}{soon}")


def _soon(day: date, today: date, days: int) -> str:
    left = (day - today).days
    when = {0: "today", 1: "tomorrow"}.get(left, f"in {left} days")
    return f": soon, {when}" if 0 <= left <= days else ""

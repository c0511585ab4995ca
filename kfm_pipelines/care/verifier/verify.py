"""All rules, in the order in which one makes the next worth asking."""

from collections.abc import Callable, Iterator

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.verifier.case import Case, open_case
from kfm_pipelines.care.verifier.evidence import Breach, Evidence, EvidenceUnreadable, read_item
from kfm_pipelines.care.verifier.rules import (
    columns,
    counts,
    crosswalk,
    disguised_places,
    displacement,
    file_bytes,
    item_binding,
    kept_columns,
    leaks,
    places,
)
from kfm_pipelines.care.verifier.rules import item as catalog
from kfm_pipelines.declarations.dataset import Dataset

VerifierRule = Callable[[Case], Iterator[Breach]]

# A stage is only asked when all before it hold: without columns there is nothing to compare, and without a sound
# crosswalk nobody knows with what.
STAGES: tuple[tuple[VerifierRule, ...], ...] = (
    columns.NAME_RULES,
    columns.TYPE_RULES,
    columns.RULES,
    crosswalk.LINK_RULES,
    crosswalk.RULES,
    (
        *places.RULES,
        *counts.RULES,
        *displacement.RULES,
        *kept_columns.RULES,
        *leaks.RULES,
        *disguised_places.RULES,
        *file_bytes.RULES,
        *catalog.RULES,
    ),
    (*counts.STEP_RULES, *file_bytes.CANONICAL_RULES, *item_binding.RULES),
)


def verify(policy: Policy, dataset: Dataset, evidence: Evidence) -> tuple[Breach, ...]:
    """Every rule of the policy that does not hold; none is the only green there is."""
    try:
        item = read_item(evidence.item)
        if policy.is_open:
            return tuple(catalog.check_governance_properties(policy, dataset, item))
        case = open_case(policy, dataset, evidence, item)
        return _first_breaches(case)
    except EvidenceUnreadable as unreadable:
        return (unreadable.breach,)


def _first_breaches(case: Case) -> tuple[Breach, ...]:
    for stage in STAGES:
        breaches = tuple(breach for rule in stage for breach in rule(case))
        if breaches:
            return breaches
    return ()

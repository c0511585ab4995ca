"""All rules, in stages: each stage makes the next one worth checking."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.rules import (
    columns,
    counts,
    crosswalk,
    disguised_places,
    displacement,
    file_bytes,
    item,
    item_binding,
    kept_columns,
    leaks,
    places,
)

VerifierRule = Callable[[Case], Iterator[Breach]]

# A stage is checked only when all before it hold: without columns there is nothing to compare, and without a sound
# crosswalk nothing to compare it with.
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
        *item.RULES,
    ),
    (*counts.STEP_RULES, *file_bytes.CANONICAL_RULES, *item_binding.RULES),
)


def first_breaches(case: Case, executor: Executor) -> tuple[Breach, ...]:
    """Returns the breaches of the first stage that has any, in the order of its rules."""
    for stage in STAGES:
        found = executor.map(lambda rule: tuple(rule(case)), stage)
        if breaches := tuple(breach for breaches in found for breach in breaches):
            return breaches
    return ()

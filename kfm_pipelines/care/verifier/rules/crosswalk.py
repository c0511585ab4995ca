"""The crosswalk: every record comes from somewhere, and no row is told twice or left out without a rule for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.care.rules import Generalise, Group, Omit, Suppress
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.search.distinct import distinct, is_among

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def links_point_to_existing_rows(case: Case) -> Iterator[Breach]:
    rows, records = case.link_rows, case.link_records
    outside = (rows < 0) | (rows >= case.origins.table.num_rows)
    outside |= (records < 0) | (records >= case.published.num_rows)
    if outside.any():
        yield Breach("crosswalk-links", "crosswalk", "rows and records that exist", f"{int(outside.sum())} others")


def links_are_complete(case: Case) -> Iterator[Breach]:

    missing = case.published.num_rows - len(distinct(case.link_records))
    if missing:
        yield Breach("crosswalk-complete", "crosswalk", "every record comes from a row", f"{missing} do not")


def classes_agree(case: Case) -> Iterator[Breach]:
    differ = case.origins.classes[case.link_rows] != case.record_classes[case.link_records]
    if differ.any():
        expected = "a record of the same class as its rows"
        yield Breach("crosswalk-class", "crosswalk", expected, f"{int(differ.sum())} of another")


def records_have_one_rule(case: Case) -> Iterator[Breach]:
    """A record made of points and lines would come under two rules, and so under none."""
    import numpy as np

    shares = [share.records for share in case.scopes]
    several = int((np.bincount(np.concatenate([*shares, np.empty(0, np.int64)])) > 1).sum())
    if several:
        yield Breach("crosswalk-class", "crosswalk", "a record comes under one rule", f"{several} under more")


def rows_are_linked_once(case: Case) -> Iterator[Breach]:
    """Row by row there is one record each; a group has a row at most once at each resolution."""
    import numpy as np

    for share in case.scopes:
        level = np.zeros(len(share.link_rows), np.int64)
        if isinstance(share.rule, Group):
            level = _link_resolutions(case, share, share.rule)
        elif len(share.link_records) != len(share.records):
            yield Breach("crosswalk-once", share.name, "one row for each record", "records with several")
        told = share.link_rows * 16 + level  # there are 16 resolutions
        again = len(told) - len(distinct(told))
        if again:
            yield Breach("crosswalk-once", share.name, "every row at most once at a resolution", f"{again} again")


def rows_are_left_out_by_rule(case: Case) -> Iterator[Breach]:
    """Too few to be shown are left out together or not at all; what is to be omitted is."""

    for share in case.scopes:
        linked = is_among(share.rows, distinct(_covered_rows(case, share)))
        out = int((~linked).sum())
        if isinstance(share.rule, Omit):
            if len(share.link_rows):
                yield Breach("omitted", share.name, "no record", f"{len(share.records)} records")
        elif out and not (_may_be_left_out(case, share) and not len(share.link_rows)):
            yield Breach("left-out", share.name, "every row told, or too few to tell", f"{out} rows left out")


def _may_be_left_out(case: Case, scope: RuleScope) -> bool:

    features = len(distinct(case.origins.features[scope.rows]))
    return isinstance(scope.rule, Generalise | Group | Suppress) and features < case.k


def _covered_rows(case: Case, scope: RuleScope) -> "npt.NDArray[np.int64]":
    """Rows that have a record; in groups, one at the coarsest resolution, which has to hold all of them."""
    import numpy as np

    if not isinstance(scope.rule, Group):
        return scope.link_rows
    coarsest = _link_resolutions(case, scope, scope.rule) == min(scope.rule.resolutions)
    return np.compress(coarsest, scope.link_rows)


def _link_resolutions(case: Case, scope: RuleScope, rule: Group) -> "npt.NDArray[np.int64]":
    """The resolution of each link. What has no cell is the remainder of the coarsest one."""
    import numpy as np

    levels: npt.NDArray[np.int64] = np.append(case.cells.resolutions, min(rule.resolutions))
    return levels[case.cells.positions[scope.link_records]]  # -1 is the last


LINK_RULES = (links_point_to_existing_rows,)
RULES = (
    links_are_complete,
    classes_agree,
    records_have_one_rule,
    rows_are_linked_once,
    rows_are_left_out_by_rule,
)

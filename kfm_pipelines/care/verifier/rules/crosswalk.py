"""Rules on the crosswalk: every record has a source, and no row is used twice or left out unless a rule says so."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kfm_pipelines.care.rules import Generalise, Group, Omit, Suppress
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.search.distinct import distinct, is_among


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
    """A record made of points and lines would be under two rules, and so under none."""
    scopes = [scope.records for scope in case.scopes]
    several = int((np.bincount(np.concatenate([*scopes, np.empty(0, np.int64)])) > 1).sum())
    if several:
        yield Breach("crosswalk-class", "crosswalk", "a record comes under one rule", f"{several} under more")


def rows_are_linked_once(case: Case) -> Iterator[Breach]:
    """A row has one record, or with groups at most one at each resolution."""
    for scope in case.scopes:
        level = np.zeros(len(scope.link_rows), np.int64)
        if isinstance(scope.rule, Group):
            level = _link_resolutions(case, scope, scope.rule)
        elif len(scope.link_records) != len(scope.records):
            yield Breach("crosswalk-once", scope.name, "one row for each record", "records with several")
        keys = scope.link_rows * 16 + level  # there are 16 resolutions
        again = len(keys) - len(distinct(keys))
        if again:
            yield Breach("crosswalk-once", scope.name, "every row at most once at a resolution", f"{again} again")


def rows_are_left_out_by_rule(case: Case) -> Iterator[Breach]:
    """Too few records to publish are left out all together; omitted classes have no record."""
    for scope in case.scopes:
        linked = is_among(scope.rows, distinct(_covered_rows(case, scope)))
        out = int((~linked).sum())
        if isinstance(scope.rule, Omit):
            if len(scope.link_rows):
                yield Breach("omitted", scope.name, "no record", f"{len(scope.records)} records")
        elif out and not (_may_be_left_out(case, scope) and not len(scope.link_rows)):
            yield Breach("left-out", scope.name, "every row told, or too few to tell", f"{out} rows left out")


def _may_be_left_out(case: Case, scope: RuleScope) -> bool:
    features = len(distinct(case.origins.features[scope.rows]))
    return isinstance(scope.rule, Generalise | Group | Suppress) and features < case.k


def _covered_rows(case: Case, scope: RuleScope) -> npt.NDArray[np.int64]:
    """Returns rows that have a record; with groups, one at the coarsest resolution, which must cover all rows."""
    if not isinstance(scope.rule, Group):
        return scope.link_rows
    coarsest = _link_resolutions(case, scope, scope.rule) == min(scope.rule.resolutions)
    return np.compress(coarsest, scope.link_rows)


def _link_resolutions(case: Case, scope: RuleScope, rule: Group) -> npt.NDArray[np.int64]:
    """Returns the resolution of each link; a record without a cell is the remainder at the coarsest resolution."""
    levels: npt.NDArray[np.int64] = np.append(case.cells.resolutions, min(rule.resolutions))
    return levels[case.cells.positions[scope.link_records]]  # -1 is the last


LINK_RULES = (links_point_to_existing_rows,)
RULES = (links_are_complete, classes_agree, records_have_one_rule, rows_are_linked_once, rows_are_left_out_by_rule)

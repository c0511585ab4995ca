"""Rules on kept columns: a record has the values of its row, a group only those it is grouped by."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from kfm_pipelines.care.rules import Group
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach


def kept_values_match_source_rows(case: Case) -> Iterator[Breach]:
    for scope in case.scopes:
        for name in case.policy.columns.keep:
            rule = scope.rule
            if isinstance(rule, Group):
                yield from _check_grouped_values(case, scope, rule, name)
            elif differ := _count_differences(case, scope, name):
                yield Breach("kept-values", f"{scope.name}: {name}", "what the row says", f"{differ} other values")


def _check_grouped_values(case: Case, scope: RuleScope, rule: Group, name: str) -> Iterator[Breach]:
    subject = f"{scope.name}: {name}"
    bare = scope.records[~case.placed[scope.records]] if name in rule.by else scope.records
    given = pc.count(case.values(name, bare)).as_py()
    if given:
        yield Breach("group-values", subject, "nothing of single records", f"{given} values")
    if name in rule.by:
        links = case.placed[scope.link_records]
        same = _values_equal(
            case.values(name, scope.link_records[links]), case.original_values(name, scope.link_rows[links])
        )
        if not pc.all(same, min_count=0).as_py():
            yield Breach("group-values", subject, "one value for all in a group", "several")


def _count_differences(case: Case, scope: RuleScope, name: str) -> int:
    same = _values_equal(case.values(name, scope.link_records), case.original_values(name, scope.link_rows))
    return len(same) - int(pc.sum(same).as_py() or 0)


def _values_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """Treats null as equal to null, and NaN to NaN."""
    same = pc.or_(pc.equal(left, right).fill_null(False), pc.and_(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False))
    return same


RULES = (kept_values_match_source_rows,)

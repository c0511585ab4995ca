"""Comparing rows: whatever differs in a value is seen, also when no statistic does."""

import math
from typing import Any

import pyarrow as pa
import pytest

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.operations.canary.compare.compare import Comparison, compare
from kfm_pipelines.operations.canary.compare.rows import RowChanges, row_changes
from kfm_pipelines_tests.fixtures.tables import DATASET, computed, rows

KEY = DATASET.table.primary_key
PUBLISHED = computed(rows(4, discharge_cfs=[100.0, 200.0, 300.0, 400.0]))
EXACT = Tolerance()


def compared(candidate: pa.Table, published: pa.Table = PUBLISHED) -> Comparison:
    return compare(published, candidate, b"published", b"candidate", KEY)


def replaced(name: str, values: list[Any], table: pa.Table = PUBLISHED) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def counts(found: RowChanges) -> tuple[int, int, int, dict[str, int], bool]:
    return found.added, found.removed, found.changed, {one.column: one.rows for one in found.columns}, found.matched


@pytest.mark.parametrize(
    ("name", "values", "changed"),
    [
        ("site_name", ["Arkansas River"] * 4, 4),  # one text for all of them, as before
        ("discharge_cfs", [400.0, 300.0, 200.0, 100.0], 4),
        ("discharge_cfs", [200.0, 100.0, 300.0, 400.0], 2),
    ],
)
def test_what_no_statistic_sees_is_a_fault(name: str, values: list[Any], changed: int) -> None:
    found = compared(replaced(name, values))
    assert found.statistics == ()
    assert counts(found.rows) == (0, 0, changed, {name: changed}, True)
    percent = 25 * changed
    assert found.faults(EXACT) == (f"{percent} % of the rows differ: 0 added, 0 removed, {changed} changed in {name}",)
    assert found.faults(Tolerance(changed_percent=percent)) == ()
    assert found.faults(Tolerance(changed_percent=percent - 0.1)) != ()


def test_rows_that_only_one_has_count_as_changed() -> None:
    """As many rows as before, and yet one is another."""
    found = compared(replaced("site_no", ["06866500", "06866501", "06866502", "07140000"]))
    assert found.rows_percent == 0
    assert counts(found.rows) == (1, 1, 0, {}, True)
    assert (found.rows.rows, found.rows.percent) == (5, 40.0)
    assert found.faults(EXACT) == ("40 % of the rows differ: 1 added, 1 removed, 0 changed",)


def test_another_order_is_no_change() -> None:
    backwards = PUBLISHED.take([3, 2, 1, 0])
    assert compared(backwards).faults(EXACT) == ()
    assert counts(row_changes(PUBLISHED, replaced("qualifier", ["P", "P", "P", "A"], backwards), KEY)) == (
        0,
        0,
        1,
        {"qualifier": 1},
        True,
    )


@pytest.mark.parametrize(
    "keys",
    [
        ["absent"],
        ["qualifier"],  # the same in every row
        [],
    ],
)
def test_rows_without_a_unique_key_are_compared_without_their_order(keys: list[str]) -> None:
    def found(candidate: pa.Table) -> RowChanges:
        return row_changes(PUBLISHED, candidate, keys)

    assert counts(found(PUBLISHED.take([3, 2, 1, 0]))) == (0, 0, 0, {}, False)
    assert counts(found(replaced("site_name", ["Arkansas River"] * 4))) == (0, 0, 4, {"site_name": 4}, False)
    assert counts(found(replaced("discharge_cfs", [200.0, 100.0, 300.0, 400.0]))) == (0, 0, 2, {}, False)
    assert found(PUBLISHED.slice(1)).removed == 1
    assert found(PUBLISHED.slice(1)).percent == 25
    assert found(pa.concat_tables([PUBLISHED, PUBLISHED.slice(0, 1)])).added == 1
    assert "compared without their order" in str(found(PUBLISHED.slice(1)))


def test_a_key_with_gaps_or_repetitions_on_either_side_matches_nothing() -> None:
    gap = replaced("site_no", ["06866500", None, "06866502", "06866503"])
    twice = pa.concat_tables([PUBLISHED, PUBLISHED.slice(0, 1)])
    for one in (gap, twice):
        assert not row_changes(one, PUBLISHED, KEY).matched
        assert not row_changes(PUBLISHED, one, KEY).matched


def test_the_row_number_of_a_release_is_ignored() -> None:
    masked = pa.table({"record": [1, 2, 3], "period": ["a", "b", "c"]})
    anew = pa.table({"record": [1, 2, 3], "period": ["c", "b", "a"]})
    assert row_changes(masked, anew, ["site_id"]).percent == 0


NAN, INFINITY = math.nan, math.inf


@pytest.mark.parametrize("matched", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ([1.0, NAN, None], [1.0, NAN, None], 0),
        ([1.0, NAN, 2.0], [1.0, None, 2.0], 1),
        ([INFINITY, 1.0, 1.0], [-INFINITY, 1.0, 1.0], 1),
        (["a", None, "b"], ["a", "b", None], 2),
        ([1, 2, 3], [1.0, 2.0, 3.0], 0),  # the type is reported elsewhere
        ([1, 2, 3], [1.0, 2.5, 3.0], 3),  # no whole numbers, so not to be had as what is published
        ([1, 2, 3], ["a", "b", "c"], 3),
        ([[1], [2], [3]], [[1], [2], [3]], 3),  # not comparable, so not known to be equal
    ],
)
def test_values_are_the_same_or_not(before: list[Any], after: list[Any], changed: int, matched: bool) -> None:
    published, candidate = (pa.table({"id": [1, 2, 3], "x": pa.array(values)}) for values in (before, after))
    found = row_changes(published, candidate, ["id"] if matched else [])
    assert (found.changed, found.matched) == (changed, matched)


def test_tables_without_rows_or_columns_in_common() -> None:
    none = PUBLISHED.slice(0, 0)
    assert row_changes(none, none, KEY) == RowChanges()
    assert row_changes(none, PUBLISHED, KEY).percent == row_changes(PUBLISHED, none, KEY).percent == 100
    assert row_changes(pa.table({"a": [1]}), pa.table({"b": [1]}), KEY).percent == 0
    assert row_changes(pa.table({"a": [1]}), pa.table({"b": [1, 2]}), KEY).added == 1


def test_no_value_of_the_data_is_in_the_report() -> None:
    other = replaced("site_name", ["Secret Cave"] * 4, replaced("discharge_cfs", [1.5, 2.5, 3.5, 4.5]))
    text = repr(compared(other)) + " ".join(compared(other).faults(EXACT))
    assert "Secret" not in text
    assert not any(f"{value}" in text for value in (1.5, 2.5, 3.5, 4.5))

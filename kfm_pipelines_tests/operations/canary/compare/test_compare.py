"""Comparing what a candidate made with what is published: each kind of difference, within its tolerance and beyond."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.operations.canary.compare.compare import Comparison, compare
from kfm_pipelines.operations.canary.compare.rows import RowChanges
from kfm_pipelines.operations.canary.compare.statistics import MAX_PERCENT
from kfm_pipelines_tests.fixtures.tables import DATASET, computed, rows

NAN, INFINITY = math.nan, math.inf
PUBLISHED = computed(rows(4, discharge_cfs=[100.0, 200.0, 300.0, 400.0]))
EXACT, ADDITIVE, ANY = Tolerance(), Tolerance(columns="additive"), Tolerance(columns="any")


def compared(candidate: pa.Table, published: pa.Table = PUBLISHED) -> Comparison:
    return compare(published, candidate, b"published", b"candidate, longer", DATASET.table.primary_key)


def column(*values: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"x": pa.array(values, kind)})


def differences(published: pa.Table, candidate: pa.Table) -> dict[str, float]:
    return {one.measure: round(one.percent, 6) for one in compared(candidate, published).statistics}


def within(percent: float) -> Tolerance:
    """Whatever the rows are, as long as their statistics are this close."""
    return Tolerance(statistics_percent=percent, changed_percent=100)


def with_field(**changes: Any) -> pa.Table:
    """The published table with another field for its discharge; nothing else is touched."""
    place = PUBLISHED.schema.get_field_index("discharge_cfs")
    field = PUBLISHED.schema.field(place)
    if "unit" in changes:
        field = field.with_metadata({**field.metadata, b"unit": changes["unit"]})
    if "nullable" in changes:
        field = field.with_nullable(changes["nullable"])
    return PUBLISHED.set_column(place, field, PUBLISHED.column(place))


def test_the_same_is_good_to_the_byte() -> None:
    same = compare(PUBLISHED, PUBLISHED, b"x", b"x", DATASET.table.primary_key)
    assert same == Comparison(4, 4, 1, 1, identical=True, rows=RowChanges(4))
    assert compared(PUBLISHED).faults(EXACT) == ()
    assert same.faults(EXACT) == ()
    assert not compared(PUBLISHED).identical
    assert (compared(PUBLISHED).published_bytes, compared(PUBLISHED).candidate_bytes) == (9, 17)


@pytest.mark.parametrize(("kept", "percent"), [(3, 25.0), (4, 0.0), (0, 100.0)])
def test_rows_are_counted(kept: int, percent: float) -> None:
    found = compared(PUBLISHED.slice(0, kept))
    assert (found.published_rows, found.candidate_rows, found.rows_percent) == (4, kept, percent)
    alone = Tolerance(statistics_percent=MAX_PERCENT, changed_percent=100)
    assert bool(found.faults(alone)) == (kept != 4)
    assert found.faults(alone.model_copy(update={"rows_percent": percent})) == ()


def test_rows_where_none_are_published() -> None:
    none = PUBLISHED.slice(0, 0)
    assert compared(none, none).faults(EXACT) == ()
    assert compared(none, none).is_empty
    assert not compared(PUBLISHED, none).is_empty
    assert compared(PUBLISHED, none).rows_percent == 100.0
    assert compared(PUBLISHED, none).faults(EXACT)[0] == "4 rows, not 0: 100 % apart"


@pytest.mark.parametrize(
    ("candidate", "sentence", "tolerated"),
    [
        (PUBLISHED.append_column("more", [[1, 2, 3, 4]]), "column more is added", {"additive", "any"}),
        (PUBLISHED.drop_columns(["qualifier"]), "column qualifier is removed", {"any"}),
        (with_field(unit=b"m3/s"), "column discharge_cfs: unit is m3/s, not ft3/s", {"any"}),
        (with_field(nullable=False), "column discharge_cfs: nullable is no, not yes", {"any"}),
        (
            PUBLISHED.select(list(reversed(PUBLISHED.column_names))),
            "the columns come in another order",
            {"additive", "any"},
        ),
    ],
)
def test_columns_are_compared(candidate: pa.Table, sentence: str, tolerated: set[str]) -> None:
    found = compared(candidate)
    for tolerance in (EXACT, ADDITIVE, ANY):
        assert found.faults(tolerance) == (() if tolerance.columns in tolerated else (sentence,))


def test_another_type_is_a_change_and_the_values_are_still_compared() -> None:
    found = compared(column(1.0, 2.0), column(1, 2))
    assert found.faults(EXACT) == ("column x: type is double, not int64",)
    assert found.faults(ANY) == ()
    assert compared(column("1", "2"), column(1, 2)).faults(ANY) != ()


FEW: tuple[Any, ...] = (0.0, 10.0, 20.0, 30.0, 100.0)  # mean 32, spread 100
HOUR = [datetime(2025, 12, 4, tzinfo=UTC) + timedelta(minutes=15 * n) for n in range(5)]


@pytest.mark.parametrize(
    ("published", "candidate", "expected"),
    [
        (column(*FEW), column(*FEW), {}),
        (column(*FEW), column(5.0, 10.0, 20.0, 30.0, 95.0), {"min": 5.0, "max": 5.0, "stddev": 7.873667}),
        (column(*FEW), column(*(10.0 + value for value in FEW)), {"mean": 10.0, "min": 10.0, "max": 10.0}),
        (
            column(1, 2, 3, 4),
            column(1, 2, 3, 3),
            {"distinct": 25.0, "mean": 8.333333, "max": 33.333333, "stddev": 25.838},
        ),
        (column("a", "b", "c"), column("a", "b", None), {"missing": 33.333333, "distinct": 33.333333}),
        (column(*HOUR), column(*(at + timedelta(hours=6) for at in HOUR)), {"mean": 600.0, "min": 600.0, "max": 600.0}),
        (column(5.0, 5.0), column(6.0, 6.0), {"mean": 20.0, "min": 20.0, "max": 20.0}),
        (column(0.0, 0.0), column(1.0, 1.0), {"mean": 100.0, "min": 100.0, "max": 100.0}),
        (column(True, False), column(True, True), {"distinct": 50.0}),
        (column(b"a", b"b"), column(b"a", b"a"), {"distinct": 50.0}),
    ],
)
def test_statistics_are_differences_in_percent(
    published: pa.Table, candidate: pa.Table, expected: dict[str, float]
) -> None:
    found = differences(published, candidate)
    assert found == pytest.approx(expected, abs=1e-3)
    largest = max(expected.values(), default=0.0)
    assert compared(candidate, published).faults(within(largest + 0.001)) == ()
    if expected:
        assert compared(candidate, published).faults(within(min(expected.values()) - 0.001))


@pytest.mark.parametrize(
    ("published", "candidate", "expected"),
    [
        (column(1.0, NAN), column(1.0, NAN), {}),
        (column(1.0, NAN), column(1.0, None), {}),
        (column(1.0, 1.0), column(1.0, NAN), {"missing": 50.0}),
        (column(1.0, 1.0), column(1.0, INFINITY), {"missing": 50.0}),
        (column(NAN, None), column(None, -INFINITY, kind=pa.float64()), {}),
        (
            column(NAN, NAN),
            column(1.0, 1.0),
            {"missing": 100.0, "distinct": 100.0, "mean": 100.0, "min": 100.0, "max": 100.0, "stddev": 100.0},
        ),
    ],
)
def test_what_is_no_number_is_missing(published: pa.Table, candidate: pa.Table, expected: dict[str, float]) -> None:
    assert differences(published, candidate) == expected


def test_no_difference_is_endless() -> None:
    found = compared(column(-1e308, 1e308, 1e308), column(0.0, 5e-324, 5e-324))
    assert found.statistics
    assert all(0 < one.percent <= MAX_PERCENT for one in found.statistics)


def test_the_largest_difference_comes_first() -> None:
    found = compared(computed(rows(4, discharge_cfs=[100.0, 200.0, 300.0, 800.0])))
    percents = [one.percent for one in found.statistics]
    assert percents == sorted(percents, reverse=True)
    assert percents[0] > 100


def test_no_value_of_the_data_is_in_a_comparison() -> None:
    published = computed(rows(2, site_name=["Hidden Spring", "Hidden Spring"], discharge_cfs=[123.456, 789.012]))
    candidate = computed(rows(2, site_name=["Secret Cave", "Hidden Spring"], discharge_cfs=[654.321, 777.888]))
    found = compared(candidate, published)
    assert found.statistics
    text = repr(found) + " ".join(found.faults(EXACT))
    for value in ("Hidden", "Secret", "123.4", "789.0", "654.3", "777.8"):
        assert value not in text

"""The verifier on columns, rows and the crosswalk: each rule broken once, and nothing else found."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from kfm_pipelines_tests.fixtures.care.handmade_releases import Record, Release
from kfm_pipelines_tests.fixtures.care.honest_releases import register_release, shapes_release
from kfm_pipelines_tests.fixtures.care.tampering import Change, Forge, on_crosswalk, on_data, rules_of


def column(name: str, change: Callable[[list[object]], list[object]]) -> Forge:
    def changed(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        values = pa.array(change(table.column(name).to_pylist()), table.schema.field(name).type)
        return table.set_column(place, table.schema.field(name), values)

    return on_data(changed)


def renumbered(table: pa.Table) -> pa.Table:
    return table.set_column(0, "record", pa.array(range(1, table.num_rows + 1), pa.int64()))


def cast(name: str, kind: pa.DataType) -> Forge:
    return on_data(lambda t: t.set_column(t.column_names.index(name), name, t.column(name).cast(kind)))


FORGED: dict[str, tuple[Forge, str]] = {
    "another place column": (
        on_data(lambda t: t.append_column("directions", pa.array(["-"] * t.num_rows))),
        "columns-allowed",
    ),
    "an undeclared column": (on_data(lambda t: t.append_column("x", pa.nulls(t.num_rows))), "columns-allowed"),
    "a column twice": (on_data(lambda t: t.append_column("cell", t.column("cell"))), "columns-allowed"),
    "a column too few": (on_data(lambda t: t.drop_columns(["condition"])), "columns-allowed"),
    "another type": (cast("records", pa.int32()), "column-types"),
    "withheld in numbers": (cast("site_name", pa.large_string()), "column-types"),
    "something withheld": (column("site_name", lambda v: ["Old Mill", *v[1:]]), "withheld-wording"),
    "a blank": (column("land_owner", lambda v: ["", *v[1:]]), "withheld-wording"),
    "a null": (column("land_owner", lambda v: [*v[:-1], None]), "withheld-wording"),
    "other numbers": (column("record", lambda v: [v[1], v[0], *v[2:]]), "record-numbers"),
    "numbers from 0": (column("record", lambda v: list(range(len(v)))), "record-numbers"),
    "rows in another order": (on_data(lambda t: renumbered(t.take(list(reversed(range(t.num_rows)))))), "row-order"),
    "a row that is not there": (on_crosswalk(lambda t: pa.table({"row": [10**6], "record": [1]})), "crosswalk-links"),
    "a row before the first": (on_crosswalk(lambda t: pa.table({"row": [-1], "record": [1]})), "crosswalk-links"),
    "a record that is not there": (on_crosswalk(lambda t: pa.table({"row": [0], "record": [999]})), "crosswalk-links"),
    "a record before the first": (on_crosswalk(lambda t: pa.table({"row": [0], "record": [0]})), "crosswalk-links"),
}


@pytest.mark.parametrize(("forge", "rule"), FORGED.values(), ids=FORGED)
def test_each_rule_of_the_file_is_found_broken(forge: Forge, rule: str) -> None:
    release = register_release()
    assert rules_of(release, forge(release.evidence())) == {rule}


def test_rows_that_share_a_place_are_in_order_as_well() -> None:
    """Or the order of rows without a place would be that of their hidden ids."""
    release = register_release()
    release.rows[release.of("withheld")[2].rows[0]]["condition"] = "poor"
    release.of("withheld")[2].values["condition"] = "poor"
    assert rules_of(release) == set()
    table, _ = release.table()
    last = table.num_rows - 1
    swapped = on_data(lambda t: renumbered(t.take([*range(last - 1), last, last - 1])))
    assert rules_of(release, swapped(release.evidence())) == {"row-order"}


def swap_rows(one: Record, other: Record) -> None:
    one.rows, other.rows = other.rows, one.rows


def publish_again(release: Release, sensitivity: str, rows: list[int] | None = None) -> None:
    first = release.of(sensitivity)[0]
    release.records.append(Record(dict(first.values), list(first.rows) if rows is None else rows))


def merge(into: Record, release: Release, gone: Record) -> None:
    into.rows += gone.rows
    release.records.remove(gone)


def drop(release: Release, sensitivity: str) -> None:
    release.records.remove(release.of(sensitivity)[0])


def drop_all(release: Release, sensitivity: str) -> None:
    gone = release.of(sensitivity)
    release.records = [record for record in release.records if record not in gone]


def forget_row(release: Release) -> None:
    """A row that is in a coarse group and in a fine one, or in the coarse one only, is still in the coarse one."""
    release.of("restricted")[1].rows.pop()


RECORDS: dict[str, tuple[Change, str]] = {
    "a class without rules": (lambda r: r.of("open")[0].values.update(sensitivity="sacred"), "class-known"),
    "no class": (lambda r: r.of("open")[0].values.update(sensitivity=None), "class-known"),
    "a record from nowhere": (lambda r: publish_again(r, "withheld", rows=[]), "crosswalk-complete"),
    "a record of another class": (lambda r: swap_rows(r.of("open")[0], r.of("withheld")[0]), "crosswalk-class"),
    "a row told twice": (lambda r: publish_again(r, "withheld"), "crosswalk-once"),
    "a group told twice": (lambda r: publish_again(r, "restricted"), "crosswalk-once"),
    "two rows in a record": (lambda r: merge(r.of("withheld")[0], r, r.of("withheld")[1]), "crosswalk-once"),
    "an open row left out": (lambda r: drop(r, "open"), "left-out"),
    "a row in a cell left out": (lambda r: drop(r, "generalised"), "left-out"),
    "a row without a place left out": (lambda r: drop(r, "withheld"), "left-out"),
    "enough of a class left out": (lambda r: drop_all(r, "withheld"), "left-out"),
    "enough in groups left out": (lambda r: drop_all(r, "restricted"), "left-out"),
    "a coarse group left out": (lambda r: drop(r, "restricted"), "left-out"),
    "a row of a coarse group left out": (forget_row, "left-out"),
}


@pytest.mark.parametrize(("change", "rule"), RECORDS.values(), ids=RECORDS)
def test_each_rule_of_the_crosswalk_is_found_broken(change: Change, rule: str) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == {rule}


def test_a_record_comes_under_one_rule() -> None:
    release = shapes_release()
    polygon, line, *_ = release.records
    merge(polygon, release, line)
    assert rules_of(release) == {"crosswalk-class"}


def test_what_is_to_be_omitted_is_not_published() -> None:
    release = register_release()
    rules = release.policy.model_dump()["classes"] | {"withheld": {"point": {"method": "omit"}}}
    release.policy = release.policy.model_validate({**release.policy.model_dump(), "classes": rules})
    assert rules_of(release) == {"omitted"}
    release.records = [record for record in release.records if record not in release.of("withheld")]
    assert rules_of(release) == set()


KEPT: dict[str, tuple[Change, str]] = {
    "another value": (lambda r: r.of("withheld")[0].values.update(condition="poor"), "kept-values"),
    "no value": (lambda r: r.of("generalised")[0].values.update(depth_m=None), "kept-values"),
    "a value where there was none": (lambda r: r.rows[r.of("open")[0].rows[0]].update(depth_m=None), "kept-values"),
    "something of single records": (lambda r: r.of("restricted")[0].values.update(condition="good"), "group-values"),
    "a group of another period": (lambda r: r.of("restricted")[0].values.update(period="Archaic"), "group-values"),
    "two periods in a group": (
        lambda r: r.rows[r.of("restricted")[1].rows[0]].update(period="Archaic"),
        "group-values",
    ),
    "a remainder of one period": (lambda r: r.of("restricted")[4].values.update(period="Woodland"), "group-values"),
}


@pytest.mark.parametrize(("change", "rule"), KEPT.values(), ids=KEPT)
def test_each_rule_of_kept_columns_is_found_broken(change: Change, rule: str) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == {rule}


def test_no_number_stays_no_number() -> None:
    release = register_release()
    record = release.of("withheld")[0]
    release.rows[record.rows[0]]["depth_m"] = record.values["depth_m"] = float("nan")
    assert rules_of(release) == set()

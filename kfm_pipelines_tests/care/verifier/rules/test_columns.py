"""Rules on columns: each one broken once, and nothing else found."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kfm_pipelines.care.verifier.rules.columns import count_unsorted_rows
from kfm_pipelines_tests.fixtures.care.honest_releases import register_release
from kfm_pipelines_tests.fixtures.care.tampering import Forge, on_data, rules_of


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
}


@pytest.mark.parametrize(("forge", "rule"), FORGED.values(), ids=FORGED)
def test_a_forged_file_breaks_one_rule(forge: Forge, rule: str) -> None:
    release = register_release()
    assert rules_of(release, forge(release.evidence())) == {rule}


def test_rows_that_share_a_place_are_in_order() -> None:
    """Otherwise rows without a place could be in the order of their hidden ids."""
    release = register_release()
    release.rows[release.of("withheld")[2].rows[0]]["condition"] = "poor"
    release.of("withheld")[2].values["condition"] = "poor"
    assert rules_of(release) == set()
    table, _ = release.table()
    last = table.num_rows - 1
    swapped = on_data(lambda t: renumbered(t.take([*range(last - 1), last, last - 1])))
    assert rules_of(release, swapped(release.evidence())) == {"row-order"}


def some_column(chance: random.Random, rows: int) -> pa.Array:
    kinds: dict[pa.DataType, list[Any]] = {
        pa.float64(): [None, float("nan"), -1.5, 0.0, -0.0, 2.5],
        pa.int64(): [None, 2**60, 2**60 + 1, -3],
        pa.string(): [None, "", "a", "B", "é"],
        pa.binary(): [None, b"", b"\x00", b"\xff"],
        pa.date32(): [None, 1, 2],
        pa.bool_(): [None, True, False],
    }
    kind, values = chance.choice(list(kinds.items()))
    return pa.array([chance.choice(values) for _ in range(rows)], kind, from_pandas=False)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_in_order_when_sorting_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        rows, width = chance.randint(0, 6), chance.randint(1, 3)
        table = pa.table({str(place): some_column(chance, rows) for place in range(width)})
        order = pc.sort_indices(table, sort_keys=[(name, "ascending", "at_end") for name in table.column_names])
        stays = order.to_pylist() == list(range(rows))
        assert (count_unsorted_rows(table.columns) == 0) is stays
        assert count_unsorted_rows(table.take(order).columns) == 0

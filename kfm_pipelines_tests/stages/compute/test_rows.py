"""Rows with one primary key: the declared order decides, in whatever order and objects they arrive."""

from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates import judge_quality, judge_schema
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.stages.compute.table import compute
from kfm_pipelines_tests.fixtures.gates.subjects import subject_of
from kfm_pipelines_tests.fixtures.tables import DATASET, minute, rows, stored

RANKS = {"column": "qualifier", "ranks": ["e", "P", "A"]}


def settling(**rules: Any) -> Dataset:
    document = DATASET.model_dump(mode="json")
    document["table"] |= rules
    if name := rules.get("revision_column"):
        column = {"name": name, "type": "int64", "nullable": False, "description": "Which correction"}
        document["table"]["columns"].append(column)
        document["table"]["primary_key"] = [*document["table"]["primary_key"], name]
    return Dataset.model_validate(document)


NEWEST = settling(on_conflict="newest", order_by=[RANKS])
BOTH = settling(on_conflict="keep_both", order_by=[RANKS], revision_column="correction")


def reading(qualifier: str | None, discharge: float | None, at: int = 0) -> pa.Table:
    return rows(1, site_no=["06866500"], observed_at=[minute(at)], qualifier=[qualifier], discharge_cfs=[discharge])


def merged(dataset: Dataset, *tables: pa.Table) -> pa.Table:
    return compute(dataset, [stored(table, f"object {number}") for number, table in enumerate(tables)]).table


def test_an_approved_reading_replaces_the_provisional_one_in_any_order_and_split() -> None:
    parts = [reading("P", 310.0), reading("A", 305.0), reading("e", 400.0), reading("P", 12.0, at=15)]
    results = {write_parquet(merged(NEWEST, *order)) for order in permutations(parts)}
    results |= {write_parquet(merged(NEWEST, pa.concat_tables(order))) for order in permutations(parts)}
    results.add(write_parquet(merged(NEWEST, pa.concat_tables(parts[:2]), pa.concat_tables(parts[2:]), parts[0])))
    assert len(results) == 1
    table = merged(NEWEST, *parts)
    assert table.select(["qualifier", "discharge_cfs"]).to_pylist() == [
        {"qualifier": "A", "discharge_cfs": 305.0},
        {"qualifier": "P", "discharge_cfs": 12.0},
    ]
    assert table.schema.equals(merged(DATASET, parts[0]).schema, check_metadata=True)


def test_both_are_kept_and_numbered_by_the_declared_order() -> None:
    table = merged(BOTH, reading("A", 305.0), reading("P", 310.0), reading("P", 12.0, at=15), reading("A", 305.0))
    assert list(zip(table["qualifier"].to_pylist(), table["discharge_cfs"].to_pylist(), strict=True)) == [
        ("P", 310.0), ("P", 12.0), ("A", 305.0)
    ]  # fmt: skip
    assert table["correction"].to_pylist() == [1, 1, 2]
    subject = subject_of(table, BOTH)
    assert judge_schema(subject).passed
    assert judge_quality(subject).passed


def test_without_a_rule_a_second_value_stays_for_the_gate_to_refuse() -> None:
    assert merged(DATASET, reading("P", 310.0), reading("A", 305.0)).num_rows == 2


def test_values_without_a_rank_and_nulls_lose() -> None:
    assert merged(NEWEST, reading("e", 1.0), reading("?", 2.0)).column("qualifier").to_pylist() == ["e"]
    by_value = settling(on_conflict="newest", order_by=[{"column": "discharge_cfs"}])
    assert merged(by_value, reading("P", None), reading("P", -5.0)).column("discharge_cfs").to_pylist() == [-5.0]


PARTS = settling(on_conflict="newest", order_by=[{"column": "qualifier", "ranks": ["P", "A"], "separator": ","}])


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("e", "P"),
        ("P,e", "A"),
        ("P", "A,e"),
        ("P", "A,P"),
        ("A,P", "A"),
        ("Ice,P", "A,P,e"),
        ("Eqp", "Ice,P"),
        ("", "P"),
    ],
)
def test_a_value_of_several_parts_is_ranked_by_its_earliest_part(older: str, newer: str) -> None:
    """So a reading that is approved in part comes after a provisional one, and before one that is wholly approved."""
    for order in permutations((reading(older, 1.0), reading(newer, 2.0), reading(older, 3.0))):
        assert merged(PARTS, *order).column("discharge_cfs").to_pylist() == [2.0]


@pytest.mark.slow
@given(
    readings=st.lists(
        st.tuples(st.sampled_from(["e", "P", "A", "?", "A,P"]), st.sampled_from([1.0, 2.0, None]), st.integers(0, 1)),
        min_size=1,
    ),
    seed=st.randoms(use_true_random=False),
)
def test_the_order_of_arrival_makes_no_difference(readings: list[tuple[str, float | None, int]], seed: Any) -> None:
    parts = [reading(*one) for one in readings]
    shuffled = [*parts]
    seed.shuffle(shuffled)
    for dataset in (NEWEST, BOTH, PARTS):
        result = merged(dataset, *parts)
        assert write_parquet(result) == write_parquet(merged(dataset, *shuffled))
        assert write_parquet(result) == write_parquet(merged(dataset, pa.concat_tables(shuffled)))
    assert merged(NEWEST, *parts).num_rows == len({at for _, _, at in readings})


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"on_conflict": "newest"}, "needs order_by"),
        ({"order_by": [RANKS]}, "need on_conflict"),
        ({"on_conflict": "newest", "order_by": [{"column": "nothing"}]}, "is not one of the columns"),
        (
            {"on_conflict": "newest", "order_by": [{"column": "discharge_cfs", "ranks": ["a"]}]},
            "must be of type string",
        ),
        ({"on_conflict": "keep_both", "order_by": [RANKS]}, "go together"),
        (
            {"on_conflict": "newest", "order_by": [{"column": "qualifier", "separator": ","}]},
            "separator needs ranks",
        ),
        ({"outside_window": "clip", "time_column": None}, "outside_window: clip needs time_column"),
    ],
)
def test_rules_that_cannot_work_are_refused(rules: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        settling(**rules)


def test_a_declaration_without_a_rule_has_the_digest_from_before_there_were_rules() -> None:
    plain = settling(outside_window="refuse")
    assert not {"on_conflict", "outside_window"} & plain.digest_document["table"].keys()
    assert "separator" not in NEWEST.digest_document["table"]["order_by"][0]
    assert len({plain.digest, NEWEST.digest, PARTS.digest, settling(outside_window="clip").digest}) == 4

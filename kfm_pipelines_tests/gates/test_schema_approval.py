"""Approved schemas: the first declaration counts as approved, every other needs a person."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.gates.schema_approval import (
    Schema,
    SchemaVersion,
    get_or_create_version,
    record_approval,
    versions_of,
)
from kfm_pipelines.state.database import Database, TransitionIllegal

FLOW: dict[str, Any] = {"flow": {"type": "float64", "nullable": True, "unit": "ft3/s"}}
METRIC: dict[str, Any] = {"flow": {"type": "float64", "nullable": True, "unit": "m3/s"}}


def declared(columns: dict[str, Any] = FLOW, *, version: str = "v1", dataset: str = "usgs/streamflow") -> Schema:
    return Schema(dataset, version, ("a" if columns is FLOW else "b") * 64, columns)


def test_the_first_declaration_counts_as_approved(database: Database) -> None:
    first = get_or_create_version(database, declared())
    assert (first.version, first.columns, first.approved_by) == (1, FLOW, "first use")
    assert get_or_create_version(database, declared()) == first
    assert get_or_create_version(database, declared(METRIC)) == first
    assert get_or_create_version(database, declared(METRIC, dataset="usda/soil")).columns == METRIC


def test_an_approval_holds_for_one_transform_version(database: Database) -> None:
    get_or_create_version(database, declared())
    second = record_approval(database, declared(METRIC, version="v2"), "ada", "metric from now on")
    assert (second.version, second.approved_by, second.reason) == (2, "ada", "metric from now on")
    assert get_or_create_version(database, declared(version="v1")).columns == FLOW
    assert get_or_create_version(database, declared(version="v2")).columns == METRIC
    # One that nobody has approved anything for has what was approved last.
    assert get_or_create_version(database, declared(version="v3")).columns == METRIC


def test_of_simultaneous_approvals_each_version_is_recorded_once(database: Database) -> None:
    get_or_create_version(database, declared())

    def try_it(who: str) -> SchemaVersion | str:
        try:
            return record_approval(database, declared(METRIC), who, "at once")
        except SchemaRefused as error:
            return str(error)

    with ThreadPoolExecutor(8) as people:
        results = list(people.map(try_it, [f"person {number}" for number in range(8)]))
    approved = [one for one in results if isinstance(one, SchemaVersion)]
    assert [one.version for one in versions_of(database, "usgs/streamflow")] == list(range(1, len(approved) + 2))
    assert all("was approved in the meantime" in one for one in results if isinstance(one, str))


def test_approvals_cannot_be_changed_or_deleted(database: Database) -> None:
    get_or_create_version(database, declared())
    for statement in ("UPDATE kfm.schema_versions SET reason = 'x'", "DELETE FROM kfm.schema_versions"):
        with pytest.raises(TransitionIllegal, match="append-only"):
            database.execute(statement)

"""Approved schemas: the first publication fixes one, every change of it needs a person."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.gates.schema_approval import (
    FIRST_USE,
    Schema,
    SchemaVersion,
    binding_version,
    fix_first_schema,
    record_approval,
    versions_of,
)
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.revisions import record_revisions
from kfm_pipelines_tests.fixtures.runs.keys import known_key, revision

FLOW: dict[str, Any] = {"flow": {"type": "float64", "nullable": True, "unit": "ft3/s"}}
METRIC: dict[str, Any] = {"flow": {"type": "float64", "nullable": True, "unit": "m3/s"}}


def declared(columns: dict[str, Any] = FLOW, *, version: str = "v1", dataset: str = "usgs/streamflow") -> Schema:
    return Schema(dataset, version, ("a" if columns is FLOW else "b") * 64, columns)


def bound(database: Database, schema: Schema) -> SchemaVersion | None:
    with database.transaction() as connection:
        return binding_version(connection, schema)


def columns_bound(database: Database, schema: Schema) -> dict[str, Any] | None:
    version = bound(database, schema)
    return None if version is None else dict(version.columns)


def all_versions(database: Database) -> list[SchemaVersion]:
    with database.transaction() as connection:
        return versions_of(connection, "usgs/streamflow")


def publish(database: Database, schema: Schema, hour: int = 3) -> SchemaVersion | None:
    """Returns the schema that was fixed already, if there was one."""
    key = known_key(database, hour)
    with database.transaction() as connection:
        fixed = fix_first_schema(connection, schema)
        record_revisions(connection, [revision(key)])
    return fixed


def fail_to_publish(database: Database, schema: Schema) -> None:
    with database.transaction() as connection:
        assert fix_first_schema(connection, schema) is None


def test_nothing_is_fixed_before_the_first_publication(database: Database) -> None:
    assert bound(database, declared()) is None
    fail_to_publish(database, declared())
    assert bound(database, declared()) is None
    assert bound(database, declared(METRIC)) is None


def test_the_first_publication_fixes_the_schema(database: Database) -> None:
    assert publish(database, declared()) is None
    first = bound(database, declared(METRIC))
    assert first is not None
    assert (first.version, first.columns, first.approved_by) == (1, FLOW, FIRST_USE)
    assert publish(database, declared(METRIC), hour=4) == first
    assert [one.columns for one in all_versions(database)] == [FLOW]
    assert bound(database, declared(METRIC, dataset="usda/soil")) is None


def test_a_version_from_before_anything_was_published_does_not_count(database: Database) -> None:
    """As a failed validation left it in older databases, and as a publication whose swap failed leaves it."""
    fail_to_publish(database, declared())
    fail_to_publish(database, declared())
    assert publish(database, declared(METRIC)) is None
    assert columns_bound(database, declared()) == METRIC
    assert [(one.version, one.columns) for one in all_versions(database)] == [(1, FLOW), (2, METRIC)]


def test_of_simultaneous_first_publications_one_fixes_the_schema(database: Database) -> None:
    """The second waits until the first is committed, and learns what it has fixed."""
    key, begun = known_key(database, 3), threading.Event()

    def second() -> SchemaVersion | None:
        with database.transaction() as connection:
            begun.set()
            return fix_first_schema(connection, declared(METRIC))

    with ThreadPoolExecutor(1) as other:
        with database.transaction() as connection:
            assert fix_first_schema(connection, declared()) is None
            later = other.submit(second)
            assert begun.wait(10)
            time.sleep(0.2)
            assert not later.done()
            record_revisions(connection, [revision(key)])
        fixed = later.result(10)
    assert fixed is not None
    assert (fixed.version, fixed.columns) == (1, FLOW)


def test_an_approval_holds_for_one_transform_version(database: Database) -> None:
    publish(database, declared())
    second = record_approval(database, declared(METRIC, version="v2"), "ada", "metric from now on")
    assert (second.version, second.approved_by, second.reason) == (2, "ada", "metric from now on")
    assert columns_bound(database, declared(version="v1")) == FLOW
    assert columns_bound(database, declared(version="v2")) == METRIC
    # One that nobody has approved anything for has what was approved last.
    assert columns_bound(database, declared(version="v3")) == METRIC


def test_of_simultaneous_approvals_each_version_is_recorded_once(database: Database) -> None:
    publish(database, declared())

    def try_it(who: str) -> SchemaVersion | str:
        try:
            return record_approval(database, declared(METRIC), who, "at once")
        except SchemaRefused as error:
            return str(error)

    with ThreadPoolExecutor(8) as people:
        results = list(people.map(try_it, [f"person {number}" for number in range(8)]))
    approved = [one for one in results if isinstance(one, SchemaVersion)]
    assert [one.version for one in all_versions(database)] == list(range(1, len(approved) + 2))
    assert all("was approved in the meantime" in one for one in results if isinstance(one, str))


def test_approvals_cannot_be_changed_or_deleted(database: Database) -> None:
    publish(database, declared())
    for statement in ("UPDATE kfm.schema_versions SET reason = 'x'", "DELETE FROM kfm.schema_versions"):
        with pytest.raises(TransitionIllegal, match="append-only"):
            database.execute(statement)

"""Each of the seven schemas accepts our records, and refuses missing, invented and mistyped fields."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.routes import sender_for_route
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.telemetry.line_files import RecordWriter, schema_violation
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.sites.site import START, Site
from kfm_pipelines_tests.fixtures.telemetry.home_files import SCHEMAS, records, totals

RESOURCES = shipped_path("resources")
DIGEST, TRACE = "0123456789abcdef" * 4, "0123456789abcdef" * 2
AT = "2025-12-04T03:14:15.926535+00:00"
KEY = "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0"
OF_A_KEY = {
    "at": AT, "dataset": "usgs/streamflow", "key": KEY, "run_id": "a-run", "trace_id": TRACE, "replay_id": None,
    "outcome": "APPLIED", "error": None,
}  # fmt: skip
OF_A_STAGE = {
    "at": AT, "run_id": "a-run", "dataset": "usgs/streamflow", "stage": "compute", "keys": 200, "replay_id": None,
    "method": "estimated", "energy_kwh": 1.2e-6,
}  # fmt: skip
RIGHT: dict[str, dict[str, Any]] = {
    "event-ingest-v1": {
        "at": AT, "event_id": DIGEST, "queue": "kfm-ingest", "message_id": "m-1", "trace_id": TRACE, "latency_ms": 12.5,
        "dedup_hit": False, "dlq": False, "energy_ws": 0.4, "carbon_g": 4.4e-5, "energy_method": "estimated",
    },
    "patterns-v1": {
        "at": AT, "queue": "kfm-ingest", "messages_received": 10, "events_recorded": 7, "messages_duplicate": 2,
        "messages_refused": 1, "producer_violations": 0, "dedupe_collisions": 0,
    },
    "eventbus-v1": {
        "at": AT, "queue": "kfm-ingest.fifo", "event_ids": [DIGEST], "message_id": "m-1", "message_group": "a-group",
        "body_hash": DIGEST, "body_bytes": 321, "dedup_hit": False, "violation": False,
    },
    "auto-update-v1": {**OF_A_KEY, "idempotency": "miss", "revision": 1, "events": 2, "latency_ms": 5000.0},
    "pattern-idempotent-safety-governance-v3": {
        **OF_A_KEY, "pipeline": "usgs-streamflow", "transform_version": "v1-0-0", "policy": "not-sensitive",
        "pipeline_success": 1, "freshness_min": 12.0, "row_delta_pct": -3.5, "checksum": DIGEST,
        "gates": {"schema": True, "qa": True}, "energy_kwh": 1e-6, "co2e_kg": 4e-7, "cost_usd": 1e-6,
        "energy_method": "estimated",
    },
    "energy-v2": {
        **OF_A_STAGE, "wall_seconds": 3.2, "cpu_seconds": 2.1, "gigabyte_seconds": 0.8, "bytes_read": 1024,
        "bytes_written": 2048, "energy_ws": 4.3, "cost_usd": 3.6e-5, "coefficients": DIGEST,
    },
    "carbon-v2": {
        **OF_A_STAGE, "carbon_g": 4.7e-4, "co2e_kg": 4.7e-7,
        "grid": {"value": 394.0, "unit": "g CO2e per kWh", "source": "eGRID2023", "year": 2023, "region": "Kansas"},
    },
}  # fmt: skip


def wrongs(record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in record:
        yield f"without {name}", {other: value for other, value in record.items() if other != name}
        yield f"{name} of another kind", {**record, name: {"of": ["another", "kind"]}}
    yield "with an invented field", {**record, "latitude": 38.9}


WRONG = [(schema, what, wrong) for schema, right in RIGHT.items() for what, wrong in wrongs(right)]


def test_there_are_seven_valid_schemas() -> None:
    assert set(RIGHT) == set(SCHEMAS)
    for name in SCHEMAS:
        document = json.loads((RESOURCES / "telemetry" / f"{name}.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(document)
        assert document["title"]
        assert document["description"]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_valid_record_is_accepted(schema: str) -> None:
    assert schema_violation(RESOURCES, schema, RIGHT[schema]) is None


@pytest.mark.parametrize(("schema", "what", "wrong"), WRONG, ids=[f"{one[0]}-{one[1]}" for one in WRONG])
def test_an_invalid_record_is_refused(schema: str, what: str, wrong: dict[str, Any]) -> None:
    assert schema_violation(RESOURCES, schema, wrong) is not None, what


@pytest.mark.parametrize(
    ("schema", "method", "value"),
    [
        ("event-ingest-v1", "energy_method", "energy_ws"),
        ("energy-v2", "method", "energy_kwh"),
        ("carbon-v2", "method", "co2e_kg"),
        ("pattern-idempotent-safety-governance-v3", "energy_method", "co2e_kg"),
    ],
)
def test_an_unknown_amount_is_null_and_never_zero(schema: str, method: str, value: str) -> None:
    right = RIGHT[schema]
    assert schema_violation(RESOURCES, schema, {**right, value: 0}) == value
    assert schema_violation(RESOURCES, schema, {**right, value: None}) == value, "estimated, and not known?"
    assert schema_violation(RESOURCES, schema, {**right, method: "unknown"}) is not None, "unknown, and yet known?"


def test_a_violation_is_named_by_path_without_the_value() -> None:
    wrong = {**RIGHT["energy-v2"], "run_id": ["38.9717, -95.2353"]}
    assert schema_violation(RESOURCES, "energy-v2", wrong) == "run_id"


def test_a_record_that_violates_its_schema_is_dropped_and_counted(tmp_path: Path) -> None:
    refused: list[int] = []
    writer = RecordWriter(tmp_path, RESOURCES, lambda: refused.append(1))
    assert writer.write("energy-v2", RIGHT["energy-v2"])
    assert not writer.write("energy-v2", {**RIGHT["energy-v2"], "stage": "sleep"})
    writer.close()
    assert len(refused) == 1
    assert (tmp_path / "energy-v2.jsonl").read_text().count("\n") == 1


def test_without_schemas_work_goes_on(tmp_path: Path) -> None:
    """An installation's own resources may be older than the code."""
    refused: list[int] = []
    assert not RecordWriter(tmp_path / "records", tmp_path, lambda: refused.append(1)).write(
        "energy-v2", RIGHT["energy-v2"]
    )
    assert refused == [1]


def test_every_record_of_a_site_is_valid(site: Site) -> None:
    """Keys arrive by two routes, change nothing, fail, and a message is invalid."""
    for route in ("s3", "fifo"):
        samples = SampleRequest("usgs/streamflow", START, 2, copies=1, route=route)
        emit_samples(
            site.services, samples, sender_for_route(site.services, samples.route, "topic", "one"), lambda _: None
        )
    site.put(3, spoiled(3))
    site.send("rubbish")
    site.work()
    site.services.telemetry.flush()
    for schema in SCHEMAS:
        written = records(site.root, schema)
        assert written, f"no record of {schema}"
        assert {schema_violation(RESOURCES, schema, one) for one in written} == {None}
    outcomes = {one["outcome"] for one in records(site.root, "auto-update-v1")}
    assert outcomes >= {"APPLIED", "FAILED"}
    assert totals(site.root).counter("telemetry_dropped_total") == 0

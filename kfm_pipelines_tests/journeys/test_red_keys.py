"""A red key from the gate to its correction: it stops alone, is explained, inspected, corrected and published."""

import json
import stat
from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.operations.retention.purge import purge
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.stages.validate import table_gates
from kfm_pipelines_tests.fixtures.runs.batches import applied, publish_due
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew, evaluations, parquet, spoiled
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import START, Site

KEYS = 12
RED = (2, 5, 11)


@pytest.mark.slow
def test_red_keys_are_set_aside_and_the_others_are_published(site: Site) -> None:
    for hour in range(KEYS):
        site.put(hour, spoiled(hour) if hour in RED else None)

    assert site.work() == {"keys": KEYS, "published": KEYS - 3, "skipped": 0, "failed": 3}

    letters = site.fetch("SELECT key, triage, reason FROM kfm.dead_letters ORDER BY key")
    assert [letter["key"] for letter in letters] == [site.key(hour) for hour in RED]
    assert {letter["triage"] for letter in letters} == {"quality"}
    published = site.fetch("SELECT key FROM kfm.revisions ORDER BY key")
    assert [one["key"] for one in published] == [site.key(hour) for hour in range(KEYS) if hour not in RED]
    # What the UI shows: one failed check that names the three, and what is wrong with each.
    [first, *_] = evaluations("qa")
    assert (first.passed, first.description) == (False, f"3 of {KEYS} keys are red")
    table = first.metadata["findings"]
    assert isinstance(table, dg.TableMetadataValue)
    errors = [record.data for record in table.records if record.data["severity"] == "error"]
    assert [record["key"] for record in errors] == [site.key(hour) for hour in RED]
    assert {(record["rule"], record["subject"]) for record in errors} == {("range", "discharge_cfs")}
    assert all("discharge_cfs=-999999.0" in str(record["sample"]) for record in errors)
    recorded = site.fetch("SELECT dataset, rule FROM kfm.qa_findings WHERE severity = 'error' ORDER BY key")
    assert recorded == [{"dataset": "usgs/streamflow", "rule": "range"}] * 3


@pytest.mark.slow
def test_refused_files_can_be_inspected_until_the_key_is_corrected(site: Site) -> None:
    site.put(0, spoiled(0))
    publish_due(site)

    assert site.red(site.key()) == ["1/table.parquet"]
    [kept] = (site.data / "work/restricted/red").rglob("*.parquet")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert pq.read_table(kept).column("discharge_cfs").to_pylist()[0] == -999_999.0
    report = json.loads((site.data / f"reports/validation/usgs-streamflow/{site.key()}/1.json").read_text())
    assert (report["passed"], [gate["gate"] for gate in report["gates"]]) == (False, ["schema", "qa"])
    assert "range" in report["gates"][1]["rules"]

    status = kfm(site.environment, "status", site.key()).out
    assert "error, qa gate, range: discharge_cfs: expected" in status
    assert "refused bytes:" in status
    [letter] = site.fetch("SELECT id FROM kfm.dead_letters")
    displayed = kfm(site.environment, "dlq", "show", str(letter["id"]), "--json").json
    assert [(finding["rule"], bool(finding["fix"])) for finding in displayed["findings"]] == [("range", True)]
    assert displayed["red_bytes"]["folder"].endswith(f"work/restricted/red/usgs-streamflow/{site.key()}/1")
    assert "refused bytes:" in kfm(site.environment, "dlq", "show", str(letter["id"])).out

    site.put(0)
    publish_due(site)
    assert applied(site.services) == {site.key(): 1}
    assert site.red(site.key()) == []
    assert kfm(site.environment, "status", site.key(), "--json").json["red_bytes"] == []


@pytest.mark.slow
def test_a_gate_that_fails_refuses_without_quoting_its_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> None:
        raise ValueError("38.5061 is not a valid number")

    for hour, (gate, triage) in enumerate({"judge_schema": "schema", "judge_quality": "quality"}.items()):
        site.put(hour)
        with monkeypatch.context() as patch:
            patch.setattr(table_gates, gate, failing)
            publish_due(site)
        [letter] = site.fetch(f"SELECT triage, reason, attempts FROM kfm.dead_letters WHERE key = '{site.key(hour)}'")
        assert (letter["triage"], letter["attempts"]) == (triage, 1)
        assert letter["reason"].endswith("table: expected a verdict, found ValueError while judging")
    assert applied(site.services) == {}


@pytest.mark.slow
def test_refused_files_are_removed_when_they_expire(site: Site) -> None:
    site.put(0, spoiled(0))
    site.put(1, spoiled(1))
    publish_due(site)
    assert purge(site.services).refused_tables == 0

    site.services.database.execute(
        "UPDATE kfm.inspections SET until = clock_timestamp() WHERE key = %(key)s", {"key": site.key(0)}
    )
    assert purge(site.services).refused_tables == 1
    assert (site.red(site.key(0)), site.red(site.key(1))) == ([], ["1/table.parquet"])
    assert purge(site.services).refused_tables == 0


@pytest.mark.slow
def test_a_schema_may_change_until_something_is_published(site: Site) -> None:
    table = streamflow_table(START)
    wrong = parquet(table.append_column("velocity", pa.array([1.5] * table.num_rows)))
    site.put(0, wrong)
    publish_due(site)
    assert "velocity" in site.fetch("SELECT reason FROM kfm.dead_letters")[0]["reason"]
    assert site.fetch("SELECT version FROM kfm.schema_versions") == []
    early = kfm(site.environment, "datasets", "approve-schema", "usgs/streamflow", "--reason", "look")
    assert (early.code, "usgs/streamflow: nothing is published yet, so there is nothing to approve" in early.err) == (
        1,
        True,
    )

    site = declared_anew(site, "usgs-streamflow", _with_velocity)
    site.put(0, wrong)
    publish_due(site)
    assert applied(site.services) == {site.key(0): 1}
    [version] = site.fetch("SELECT version, columns, approved_by FROM kfm.schema_versions")
    assert (version["version"], version["approved_by"], "velocity" in version["columns"]) == (1, "first use", True)

    site = declared_anew(site, "usgs-streamflow", lambda d: d["table"]["columns"].pop())
    site.put(1)
    publish_due(site)
    assert applied(site.services) == {site.key(0): 1}
    reasons = [row["reason"] for row in site.fetch("SELECT reason FROM kfm.dead_letters WHERE state = 'open'")]
    assert any("expected schema version 1, as approved, found velocity removed" in reason for reason in reasons)


def _with_velocity(document: dict[str, Any]) -> None:
    velocity = {"name": "velocity", "type": "float64", "nullable": True, "unit": "ft/s", "description": "New"}
    document["table"]["columns"].append(velocity)


@pytest.mark.slow
def test_a_changed_schema_is_refused_until_it_is_approved(site: Site) -> None:
    site.put(0)
    publish_due(site)
    site = declared_anew(site, "usgs-streamflow", _with_velocity)
    table = streamflow_table(START + timedelta(hours=1))
    site.put(1, parquet(table.append_column("velocity", pa.array([1.5] * table.num_rows))))

    publish_due(site)
    [letter] = site.fetch("SELECT id, reason FROM kfm.dead_letters")
    change = "expected schema version 1, as approved, found velocity added (float64 in ft/s, may be null)"
    assert change in letter["reason"]

    tried = kfm(site.environment, "datasets", "approve-schema", "usgs/streamflow", "--reason", "look", "--dry-run")
    assert "velocity added (float64 in ft/s, may be null)" in tried.out
    assert "has schema version 1; these changes would be approved. Nothing was done." in tried.out
    options = ("--reason", "the gauges report it now", "--by", "ada", "--json")
    approved = kfm(site.environment, "datasets", "approve-schema", "usgs/streamflow", *options).json
    assert (approved["from"], approved["to"], approved["approved"]) == (1, 2, True)
    again = kfm(site.environment, "datasets", "approve-schema", "usgs/streamflow", *options)
    assert (again.code, again.err.strip()) == (
        1,
        "kfm: usgs/streamflow: the declaration has schema version 2, so there is nothing to approve",
    )
    versions = site.fetch("SELECT version, approved_by, reason FROM kfm.schema_versions ORDER BY version")
    assert versions == [
        {"version": 1, "approved_by": "first use", "reason": "the declaration the dataset began with"},
        {"version": 2, "approved_by": "ada", "reason": "the gauges report it now"},
    ]

    redriven = kfm(site.environment, "dlq", "redrive", str(letter["id"]), "--work", "--json").json
    assert (redriven["succeeded"], redriven["failed"]) == (1, 0)
    assert "velocity" in pq.read_table(site.data / f"processed/usgs-streamflow/{site.key(1)}.parquet").column_names

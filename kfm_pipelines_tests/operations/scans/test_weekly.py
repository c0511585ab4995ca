"""The deep scan runs suites over many published keys at once, and its pages show nothing that is masked."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.care.published_table import CELL
from kfm_pipelines.care.review import decide as exempt
from kfm_pipelines.declarations import Quality
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates import schema_approval
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.scans.data_docs import NO_OUTSIDE_RESOURCES
from kfm_pipelines.operations.scans.nightly import nightly_scan
from kfm_pipelines.operations.scans.result import ScanKind, ScanResult
from kfm_pipelines.operations.scans.tables import scan_lock
from kfm_pipelines.operations.scans.weekly import deep_scan
from kfm_pipelines.orchestration.resource import services_of_process
from kfm_pipelines.producer.samples.sample import to_parquet
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.state.verdicts import latest_findings
from kfm_pipelines_tests.fixtures.care.register import Register, sites
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.runs.candidates import declaration_path, declared_now
from kfm_pipelines_tests.fixtures.scans import last_scan
from kfm_pipelines_tests.fixtures.sites.published_site import (
    DROUGHT,
    HERITAGE,
    HOURS,
    STREAMFLOW,
    flipped,
    paths_of,
    publish_everything,
    replaced,
    revision_of,
)
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site

pytestmark = pytest.mark.slow

BETWEEN, IN_SET = "expect_column_values_to_be_between", "expect_column_values_to_be_in_set"


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("deep") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        publish_everything(opened)
        yield opened


def expecting(site: Site, name: str, *expectations: dict[str, Any], dataset: str = STREAMFLOW) -> Dataset:
    """The dataset, as if it declared a deep suite with these expectations."""
    path = site.services.settings.resources / "expectations" / f"{name}.json"
    path.write_text(json.dumps({"name": name, "expectations": list(expectations)}))
    declared = site.services.datasets[dataset]
    return declared.model_copy(update={"quality": Quality(deep_suite=name)})


def expectation(kind: str, severity: str = "critical", **arguments: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": arguments, "severity": severity}


def pages(site: Site, dataset: str) -> dict[str, str]:
    folder = site.data / "reports" / "data-docs" / dataset.replace("/", "-")
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}


def rows_of(site: Site, *hours: int) -> int:
    return sum(revision_of(site, site.key(hour)).rows for hour in hours)


def scanned(site: Site, dataset: Dataset, run_id: str = "a-run", **how: Any) -> ScanResult:
    return deep_scan(site.services, dataset, run_id, **how)


@pytest.mark.parametrize(("name", "keys"), [(STREAMFLOW, HOURS), (DROUGHT, 1)])
def test_the_samples_meet_their_suites(site: Site, name: str, keys: int) -> None:
    before = site.tree()
    found = scanned(site, site.services.datasets[name])
    assert (found.keys, found.keys_left, found.errors) == (keys, 0, 0)
    assert site.tree() == before


@pytest.mark.parametrize("name", [STREAMFLOW, DROUGHT, HERITAGE])
def test_the_nightly_scan_of_every_sample_is_green(site: Site, name: str) -> None:
    found = nightly_scan(site.services, site.services.datasets[name], "nightly", full=True)
    assert found.keys > 0
    assert found.findings == ()


def test_a_suite_sees_all_keys_as_one_table(site: Site) -> None:
    total = rows_of(site, *range(HOURS))
    dataset = expecting(
        site, "row-count", expectation("expect_table_row_count_to_equal", value=total), expectation(
            "expect_table_row_count_to_be_between", "warning", min_value=total + 1
        ),
    )  # fmt: skip
    found = scanned(site, dataset, "counted")
    assert [(one.key, one.gate, one.finding.severity, one.finding.measured) for one in found.findings] == [
        (None, "deep", "warn", str(total))
    ]
    [recorded] = latest_findings(site.services.database, run_id="counted")
    assert (recorded.dataset, recorded.key, recorded.gate, recorded.rule) == (
        STREAMFLOW, None, "deep", "gx:expect_table_row_count_to_be_between"
    )  # fmt: skip
    last = last_scan(site, "deep", STREAMFLOW)
    assert (last["keys"], last["errors"], last["warnings"]) == (HOURS, 0, 1)
    assert last["detail"] == {
        "left": 0,
        "left_out": 0,
        "suites": ["row-count"],
        "rows": total,
        "data_docs": found.data_docs,
    }


def test_the_newest_keys_are_taken(site: Site) -> None:
    newest = rows_of(site, HOURS - 1)
    dataset = expecting(site, "newest", expectation("expect_table_row_count_to_equal", value=newest))
    found = scanned(site, dataset, rows=newest)
    assert (found.keys, found.keys_left, found.keys_left_out, found.findings) == (1, HOURS - 1, 0, ())
    assert str(found).endswith(f"in 1 keys, {HOURS - 1} older ones not reached")
    assert scanned(site, dataset, rows=newest + 1).errors == 1
    assert scanned(site, dataset, days=1).keys == HOURS


def test_a_key_changed_in_the_store_is_reported_and_left_out(site: Site) -> None:
    path = paths_of(site, site.key())["content"]
    dataset = expecting(site, "changed", expectation("expect_table_row_count_to_be_between", min_value=1))
    with replaced(path, flipped(path)):
        found = scanned(site, dataset, "changed")
    assert (found.keys, found.keys_left, found.keys_left_out) == (HOURS - 1, 0, 1)
    assert {(one.key, one.gate, one.finding.severity) for one in found.findings} == {(site.key(), "published", "error")}
    assert "published-digest" in {one.finding.rule for one in found.findings}
    recorded = latest_findings(site.services.database, run_id="changed")
    assert {(one.key, one.gate) for one in recorded} == {(site.key(), "published")}
    assert len(recorded) == len(found.findings)


def test_the_pages_show_results_and_load_nothing_from_outside(site: Site) -> None:
    for path in ("old-page.html", "validations/old/page.html"):
        site.services.store.write(f"reports/data-docs/usgs-streamflow/{path}", b"old")
    dataset = expecting(site, "some-gauges", expectation(BETWEEN, column="discharge_cfs", min_value=0, max_value=0.125))
    found = scanned(site, dataset, "run-of-pages")
    assert found.data_docs == f"{site.services.store.url}/reports/data-docs/usgs-streamflow/index.html"
    rendered = pages(site, STREAMFLOW)
    [result] = [name for name in rendered if name.startswith("validations/some-gauges/run-of-pages/")]
    assert set(rendered) == {"index.html", "expectations/some-gauges.html", result}
    assert result in rendered["index.html"]
    for text in rendered.values():
        first = re.search(r"<meta http-equiv=[^>]*>|<(link|script|img)\b", text)
        assert first is not None
        assert first[0] == NO_OUTSIDE_RESOURCES
    for expected in ("some-gauges", "Failed", "discharge_cfs", "0.125"):
        assert expected in rendered[result]


def test_a_suite_is_validated_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from great_expectations.datasource.fluent.interfaces import Batch

    validate, asked = Batch.validate, []

    def counting(batch: Batch, *arguments: Any, **named: Any) -> Any:
        asked.append(batch)
        return validate(batch, *arguments, **named)

    monkeypatch.setattr(Batch, "validate", counting)
    scanned(site, expecting(site, "once", expectation("expect_table_row_count_to_be_between", min_value=1)))
    assert len(asked) == 1


def test_a_dataset_without_a_suite_is_left_alone(site: Site) -> None:
    bare = site.dataset.model_copy(update={"quality": Quality()})
    found = scanned(site, bare, "bare")
    assert (found.keys, found.note) == (0, "usgs/streamflow declares no suite")
    assert site.fetch("SELECT FROM kfm.scans WHERE run_id = 'bare'") == []


def test_two_deep_scans_of_a_dataset_do_not_run_at_once(site: Site) -> None:
    with scan_lock(site.services.database, ScanKind.DEEP, STREAMFLOW):
        found = scanned(site, site.dataset)
    assert found.note == "another deep scan of usgs/streamflow is running"


def test_pages_about_masked_data_have_no_values(site: Site) -> None:
    """Even published values are left out where the policy calls the data sensitive."""
    heritage = expecting(
        site,
        "heritage-words",
        expectation(IN_SET, column="period", value_set=["another"]),
        expectation("expect_column_max_to_be_between", column="latitude", max_value=1),
        expectation("expect_column_distinct_values_to_be_in_set", column="condition", value_set=["another"]),
        expectation("expect_column_mean_to_be_between", column="site_type", max_value=1),
        dataset=HERITAGE,
    )
    found = scanned(site, heritage)
    assert found.errors == 4
    assert [one.finding.sample for one in found.findings] == [""] * 4
    rendered = pages(site, HERITAGE)
    [result] = [text for name, text in rendered.items() if name.startswith("validations/heritage-words/")]
    assert "Failed" in result
    assert "period" in result
    latitudes = {f"{value:.4f}"[:6] for value in published(site, HERITAGE).column("latitude").drop_null().to_pylist()}
    for text in rendered.values():
        assert not re.search(r"\b(Archaic|Woodland|good|camp)\b|14XX", text)
        assert not [value for value in latitudes if value in text]


def test_pages_about_open_data_show_examples(site: Site) -> None:
    scanned(site, expecting(site, "no-gauge", expectation(IN_SET, column="site_no", value_set=["another"])))
    [result] = [text for name, text in pages(site, STREAMFLOW).items() if name.startswith("validations/")]
    gauges = set(published(site, STREAMFLOW).column("site_no").to_pylist())
    assert [gauge for gauge in gauges if gauge in result]


def test_pages_about_exempted_data_have_no_values(site: Site) -> None:
    """Exempted data is published unmasked, with other columns; its policy still calls it sensitive."""
    register = Register(site)
    until = site.services.today() + timedelta(days=1)
    exempt.grant_exemption(site.services, HERITAGE, "", until, register.private_key, "to show that this works")
    register.publish(sites(register.dataset, site_type=["Quillwort Hollow"] * 60))
    assert "Quillwort Hollow" in published(site, HERITAGE).column("site_type").to_pylist()

    assert nightly_scan(site.services, register.dataset, "exempted", full=True).findings == ()
    heritage = expecting(
        site,
        "heritage-exempted",
        expectation(IN_SET, column="site_type", value_set=["another"]),
        expectation("expect_column_values_to_not_be_null", column=CELL),
        dataset=HERITAGE,
    )
    found = scanned(site, heritage)
    assert [(one.finding.subject, one.finding.severity, one.finding.sample) for one in found.findings] == [
        ("site_type", "error", ""),
        (CELL, "info", ""),
    ]
    rendered = pages(site, HERITAGE)
    assert [name for name in rendered if name.startswith("validations/heritage-exempted/")]
    assert not [name for name, text in rendered.items() if "Quillwort" in text]


def test_keys_of_an_older_schema_are_left_out(site: Site) -> None:
    """They were published without the new column. Runs last: the dataset keeps the column."""
    column = {"name": "velocity", "type": "float64", "nullable": True, "description": "Speed of the water"}
    path = declaration_path(site)
    table = yaml.safe_load(path.read_text())["table"]
    change(path, table={**table, "columns": [*table["columns"], column]})
    dataset = declared_now(site)
    services_of_process(site.services.settings).close()
    services_of_process.cache_clear()
    schema_approval.approve(site.services, dataset, "ana", "gauges measure it now")
    assert nightly_scan(site.services, dataset, "approved", full=True).findings == ()

    sample = streamflow_table(START + timedelta(hours=HOURS))
    site.put(HOURS, to_parquet(sample.append_column("velocity", pa.array([1.0] * sample.num_rows))))
    site.work()
    found = scanned(site, dataset)
    assert (found.keys, found.keys_left_out, found.errors) == (1, HOURS, 0)


def published(site: Site, dataset: str) -> pa.Table:
    [path, *_] = (site.data / "processed" / dataset.replace("/", "-")).glob("*.parquet")
    return pq.read_table(path)

"""Scans as Dagster jobs: red with metadata about every finding, green when all is well."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.sites.published_site import paths_of, replaced
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("scans") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        for hour in range(2):
            site.put(hour)
        site.work()
        yield site


def run(site: Site, job: str, **config: Any) -> dg.ExecuteInProcessResult:
    definitions = build_definitions(site.services.settings.resources)
    [op] = [node.name for node in definitions.resolve_job_def(job).nodes]
    with open_instance() as instance:
        return definitions.resolve_job_def(job).execute_in_process(
            instance=instance, run_config={"ops": {op: {"config": config}}} if config else None, raise_on_error=False
        )


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of the run's output, or of its failure."""
    if result.success:
        [event] = [event for event in result.all_events if event.is_successful_output]
        return _plain(event.step_output_data.metadata)
    [event] = result.get_step_failure_events()
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    return {**_plain(failure.metadata), "description": failure.description}


def _plain(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
    return {
        name: [record.data for record in value.records] if isinstance(value, dg.TableMetadataValue) else value.value
        for name, value in metadata.items()
    }


def test_the_nightly_scan(published: Site) -> None:
    clean = run(published, "kfm_qa_scan")
    assert clean.success
    assert metadata_of(clean) == {"keys": 2, "keys_left": 0, "keys_left_out": 0, "errors": 0, "warnings": 0}
    key = published.key(1)
    with replaced(paths_of(published, key)["processed"], b"something else"):
        red = run(published, "kfm_qa_scan", dataset="usgs/streamflow", full=True, keys=10)
        assert not red.success
        seen = metadata_of(red)
        assert seen["description"] == "usgs/streamflow: 1 errors and 0 warnings in 2 keys"
        [record] = seen["findings"]
        assert (record["key"], record["rule"], record["severity"]) == (key, "published-digest", "error")
    [recorded] = published.fetch("SELECT run_id, key, rule FROM kfm.qa_findings")
    assert recorded == {"run_id": red.run_id, "key": key, "rule": "published-digest"}
    assert run(published, "kfm_qa_scan", keys=1).success
    assert not run(published, "kfm_qa_scan", dataset="no/such").success
    scans = published.fetch("SELECT dataset, keys, errors FROM kfm.scans WHERE run_id = '" + red.run_id + "'")
    assert scans == [{"dataset": "usgs/streamflow", "keys": 2, "errors": 1}]


def test_the_extents(published: Site) -> None:
    path = paths_of(published, published.key())["collection"]
    right = path.read_bytes()
    path.write_bytes(json.dumps(json.loads(right) | {"extent": {}}).encode())
    result = run(published, "kfm_recompute_extents")
    assert result.success
    assert (metadata_of(result)["warnings"], metadata_of(result)["errors"]) == (1, 0)
    assert path.read_bytes() == right
    assert metadata_of(run(published, "kfm_recompute_extents"))["warnings"] == 0


def test_a_failure_in_one_dataset_does_not_stop_the_others(published: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = FileStore.paths

    def failing(store: FileStore, prefix: str) -> list[str]:
        if "heritage" in prefix:
            raise ZeroDivisionError("Quillwort Hollow")
        return paths(store, prefix)

    monkeypatch.setattr(FileStore, "paths", failing)
    red = run(published, "kfm_recompute_extents")
    assert not red.success
    assert metadata_of(red)["description"] == "heritage/sites: ZeroDivisionError, see the log of the run"
    assert metadata_of(red)["keys"] == 2
    assert "Quillwort" not in str(red.all_events)


def test_the_deep_scan(published: Site) -> None:
    """A dataset that cannot be scanned does not stop the others."""
    result = run(published, "kfm_deep_scan", rows=1000, days=30)
    assert result.success
    page = f"{published.services.store.url}/reports/data-docs/usgs-streamflow/index.html"
    assert metadata_of(result)["data_docs/usgs/streamflow"] == page
    assert "usgs-streamflow" in (published.data / "reports/data-docs/usgs-streamflow/index.html").read_text()

    (published.services.settings.resources / "expectations" / "drought-tribal-areas.json").unlink()
    red = run(published, "kfm_deep_scan")
    assert not red.success
    assert metadata_of(red)["description"].startswith("drought/tribal-areas: drought-tribal-areas.json: cannot be read")
    assert metadata_of(red)["keys"] == 2


def test_snapshots_are_written_only_when_something_changed(published: Site) -> None:
    first, again = (metadata_of(run(published, "kfm_snapshots")) for _ in range(2))
    assert [(one["items"], one["written"]) for one in (first, again)] == [(2, 1), (2, 0)]
    assert metadata_of(run(published, "kfm_snapshots", dataset="usgs/streamflow", anyway=True))["written"] == 1
    with replaced(paths_of(published, published.key())["item"], b"no Item"):
        assert "is not what was published" in metadata_of(run(published, "kfm_snapshots", anyway=True))["description"]

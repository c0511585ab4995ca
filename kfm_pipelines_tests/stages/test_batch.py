"""Hand-offs are Parquet in the process of the run, never on disk, never pickled."""

import io
import pickletools
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.partitions import register_partitions
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.resource import services_of_process
from kfm_pipelines_tests.fixtures.runs.batches import applied, expire_leases, publish_due
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all tests here; each takes the key of another hour."""
    root = tmp_path_factory.mktemp("handoffs") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        yield opened


def run_up_to(site: Site, hour: int, *stages: str) -> str:
    """Runs the first stages for the key of an hour; returns the key."""
    site.put(hour)
    site.drain()
    key = site.key(hour)
    job = build_definitions(site.services.settings.resources).resolve_job_def("usgs_streamflow")
    with open_instance() as instance:
        register_partitions(instance, site.dataset, [key])
        assets = [dg.AssetKey(["usgs", "streamflow", stage]) for stage in stages]
        assert job.execute_in_process(instance=instance, asset_selection=assets, partition_key=key).success
    return key


def is_pickle(data: bytes) -> bool:
    try:
        return len([*pickletools.genops(data)]) > 0
    except ValueError:
        return False


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def pickles(folder: Path) -> list[Path]:
    return [path for path in files(folder) if path.suffix in (".pickle", ".pkl") or is_pickle(path.read_bytes())]


def work_files(site: Site, key: str) -> list[str]:
    """The files of the key's work folders, which only this process has."""
    services = services_of_process(site.services.settings)
    return [path.removeprefix("work/") for path in services.store.paths("work") if f"/{key}/" in path]


def test_before_masking_a_table_is_only_in_this_process(site: Site) -> None:
    key = run_up_to(site, 0, "compute")
    [path] = work_files(site, key)
    assert path == f"restricted/usgs-streamflow/{key}/1/table.parquet"
    data = services_of_process(site.services.settings).store.read(f"work/{path}")
    assert pq.read_table(io.BytesIO(data)).num_rows > 0
    assert [path for path in files(site.root) if key in path.parts] == []
    assert not (site.data / "work").exists()


def test_after_masking_there_are_two_tables(site: Site) -> None:
    key = run_up_to(site, 1, "compute", "mask")
    assert [path.split("/")[0] for path in work_files(site, key)] == ["masked", "restricted"]


def test_nothing_is_pickled_before_or_after_publication(site: Site) -> None:
    key = run_up_to(site, 2, "compute", "mask", "validate", "stage")
    # The computed table, data, Item, provenance, manifest, attestation, software and public key.
    assert len(work_files(site, key)) == 8
    assert pickles(site.root) == []

    expire_leases(site.services)
    publish_due(site)
    assert applied(site.services)[key] == 1
    assert site.services.store.paths("work") == []
    assert pickles(site.root) == []


def test_pickles_are_detected() -> None:
    import pickle

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert is_pickle(pickle.dumps({"a": [1, 2]}, protocol))
    assert not is_pickle(b"PAR1")
    assert not is_pickle(b'{"type": "Feature"}')

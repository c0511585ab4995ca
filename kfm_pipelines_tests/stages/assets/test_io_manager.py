"""Hand-offs are Parquet in the work tier, restricted before masking, never pickled, and removed at the end."""

import io
import pickletools
import stat
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.dispatch import register_partitions
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.orchestration.instance import open_instance
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


def files_of(site: Site, key: str) -> list[str]:
    work = site.data / "work"
    return [str(path.relative_to(work)) for path in files(work) if key in path.parts]


def test_before_masking_a_table_is_only_in_the_restricted_tier(site: Site) -> None:
    key = run_up_to(site, 0, "compute")

    assert files_of(site, key) == [f"restricted/usgs-streamflow/{key}/1/table.parquet"]
    data = (site.data / "work" / files_of(site, key)[0]).read_bytes()
    assert pq.read_table(io.BytesIO(data)).num_rows > 0
    assert [path for path in files(site.data) if key in path.parts and "work" not in path.parts] == []
    assert stat.S_IMODE((site.data / "work").stat().st_mode) == 0o700


def test_after_masking_a_table_is_in_the_masked_tier(site: Site) -> None:
    key = run_up_to(site, 1, "compute", "mask")
    assert [path.split("/")[0] for path in files_of(site, key)] == ["masked", "restricted"]


def test_nothing_is_pickled_before_or_after_publication(site: Site) -> None:
    key = run_up_to(site, 2, "compute", "mask", "validate", "stage")
    # Hand-offs, data, Item, provenance, manifest, attestation; and for the first release, software and public key.
    assert len(files_of(site, key)) == 9
    assert pickles(site.root) == []

    expire_leases(site.services)
    publish_due(site)
    assert applied(site.services) == {site.key(hour): 1 for hour in range(3)}
    assert files(site.data / "work") == []
    assert pickles(site.root) == []


def test_pickles_are_detected() -> None:
    import pickle

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert is_pickle(pickle.dumps({"a": [1, 2]}, protocol))
    assert not is_pickle(b"PAR1")
    assert not is_pickle(b'{"type": "Feature"}')

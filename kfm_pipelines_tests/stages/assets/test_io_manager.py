"""Hand-offs: Parquet in the work tier, restricted before masking, never pickle, gone at the end."""

import io
import pickletools
import stat
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.dispatch import register_partitions
from kfm_pipelines.dispatch.tables import due_keys
from kfm_pipelines_tests.fixtures.sites.site import Site


def run_up_to(site: Site, instance: dg.DagsterInstance, *stages: str) -> dg.ExecuteInProcessResult:
    site.drain()
    due = due_keys(site.services.database, site.dataset.dataset, 10)
    register_partitions(instance, site.dataset, [key.key for key in due])
    job = build_definitions(site.services.settings.resources).resolve_job_def("usgs_streamflow")
    return job.execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(["usgs", "streamflow", stage]) for stage in stages],
        partition_key=site.key(),
    )


def is_pickle(data: bytes) -> bool:
    try:
        return len([*pickletools.genops(data)]) > 0
    except ValueError:
        return False


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def pickles(folder: Path) -> list[Path]:
    return [path for path in files(folder) if path.suffix in (".pickle", ".pkl") or is_pickle(path.read_bytes())]


def test_before_masking_a_table_lies_only_in_the_restricted_tier(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()

    run_up_to(site, instance, "compute")

    path = site.data / f"work/restricted/usgs-streamflow/{site.key()}/1/table.parquet"
    assert [found for found in files(site.data) if found.suffix == ".parquet"] == [path]
    assert pq.read_table(io.BytesIO(path.read_bytes())).num_rows > 0
    assert stat.S_IMODE((site.data / "work").stat().st_mode) == 0o700


def test_after_masking_a_table_lies_in_the_masked_tier(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()

    run_up_to(site, instance, "compute", "mask")

    assert [path.relative_to(site.data / "work").parts[0] for path in files(site.data / "work")] == [
        "masked",
        "restricted",
    ]


def test_nothing_a_run_has_written_before_it_publishes_is_a_pickle(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()
    run_up_to(site, instance, "compute", "mask", "validate", "stage")
    # Hand-offs, data, Item, provenance, manifest, attestation; and, because it is the first, software and public key.
    assert len(files(site.data / "work")) == 9
    assert pickles(site.root) == []


def test_when_a_key_is_published_no_work_and_no_pickle_is_left(site: Site) -> None:
    site.put()
    site.work()
    assert files(site.data / "work") == []
    assert pickles(site.root) == []


def test_the_detector_of_pickles_detects() -> None:
    import pickle

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert is_pickle(pickle.dumps({"a": [1, 2]}, protocol))
    assert not is_pickle(b"PAR1")
    assert not is_pickle(b'{"type": "Feature"}')

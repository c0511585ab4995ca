"""Upkeep and withdrawal: fewer files, no old snapshots, and nothing left of what was withdrawn."""

from datetime import UTC, date, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.sinks.table import maintain, sink
from kfm_pipelines.sinks.table.maintain import Upkeep
from kfm_pipelines_tests.fixtures.sinks import assert_table_is_catalog, flush, publish_hours, the_table
from kfm_pipelines_tests.fixtures.sites.site import START, Site

pytestmark = pytest.mark.slow


def data_files(site: Site) -> list[str]:
    return [task.file.file_path for task in the_table(site).scan().plan_files()]


def test_small_files_are_put_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "SMALL_FILES", 3)
    keys = []
    for hour in range(3):
        keys += publish_hours(site, [hour])
        flush(site)
    assert len(data_files(site)) == 3
    done = maintain.maintain(site.services, site.dataset)
    assert (done.compacted, done.expired) == (1, 0)
    assert len(data_files(site)) == 1
    assert_table_is_catalog(site, keys)
    assert maintain.maintain(site.services, site.dataset) == Upkeep("usgs/streamflow")
    publish_hours(site, [1], version=1)  # its rows are in the same file as others
    flush(site)
    assert_table_is_catalog(site, keys)


def test_a_period_that_does_not_fit_into_memory_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "SMALL_FILES", 2)
    monkeypatch.setattr(maintain, "MAX_ROWS", 100)
    for hour in range(2):
        publish_hours(site, [hour])
        flush(site)
    done = maintain.maintain(site.services, site.dataset)
    assert (done.compacted, done.too_large) == (0, ("2025-12-01",))
    assert len(data_files(site)) == 2


def test_old_snapshots_go_with_their_files(site: Site) -> None:
    keys = publish_hours(site, range(2))
    flush(site)
    publish_hours(site, [0], version=1)
    flush(site)
    before = files_of(site)
    now = the_table(site).current_snapshot()
    later = datetime.now(UTC).date() + timedelta(days=200)
    site.services.__dict__["today"] = lambda: later
    done = maintain.maintain(site.services, site.dataset)
    assert done.expired > 0
    table = the_table(site)
    assert [one.snapshot_id for one in table.metadata.snapshots] == [now.snapshot_id if now else None]
    assert set(table.refs()) == {"main"}
    assert files_of(site) < before
    assert_table_is_catalog(site, keys)


def test_snapshots_without_a_tag_do_not_pile_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version of the metadata lists all of them."""
    monkeypatch.setattr(maintain, "SNAPSHOTS_KEPT", 2)
    counts = []
    for version in range(4):
        publish_hours(site, [0], version=version)
        flush(site)
        counts.append(len(the_table(site).metadata.snapshots))
    assert max(counts) <= 5
    assert_table_is_catalog(site, [site.key(0)])


def files_of(site: Site) -> set[str]:
    return {path for path in site.services.store.paths("tables") if path.endswith((".parquet", ".avro"))}


@pytest.mark.parametrize("compacted", [False, True])
def test_what_was_withdrawn_leaves_no_file(site: Site, monkeypatch: pytest.MonkeyPatch, *, compacted: bool) -> None:
    """Neither in a snapshot, a manifest nor a file; what was not withdrawn keeps its history."""
    monkeypatch.setattr(maintain, "SMALL_FILES", 1)
    site.services.__dict__["today"] = lambda: date(2026, 5, 1)
    keys = publish_hours(site, range(2))
    flush(site)
    [secret] = site.fetch(f"SELECT content_hash FROM kfm.revisions WHERE key = '{keys[0]}'")
    planted = discharges_of_hour(site)
    if compacted:
        maintain.maintain(site.services, site.dataset)
    publish_hours(site, [0], version=1)
    withdrawn = {keys[0]: [secret["content_hash"]]}
    monkeypatch.setattr(sink, "find_withdrawn_contents", lambda connection, current: withdrawn)
    site.services.__dict__["today"] = lambda: date(2026, 5, 2)
    flush(site)
    assert set(the_table(site).refs()) == {"main", "2026-05-02"}
    assert_table_is_catalog(site, keys)
    kept = [path for path in site.services.store.paths("tables") if path.endswith(".parquet")]
    assert kept
    for path in kept:
        rows = pq.read_table(site.data / path)
        assert not set(rows.column("discharge_cfs").to_pylist()) & planted


def discharges_of_hour(site: Site) -> set[float]:
    """Values that only the first version of the hour has."""
    versions = []
    for version in range(2):
        _, data = streamflow_object(START, seed=version)
        path = site.root / f"{version}.parquet"
        path.write_bytes(data)
        versions.append(set(pq.read_table(path).column("discharge_cfs").to_pylist()))
    [other] = [set(pq.read_table(one).column("discharge_cfs").to_pylist()) for one in [hour_file(site, 1)]]
    return versions[0] - versions[1] - other - {None}


def hour_file(site: Site, hour: int) -> str:
    return str(site.data / f"processed/{site.dataset.pipeline}/{site.key(hour)}.parquet")

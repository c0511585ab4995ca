"""One failing part does not stop the others: a hanging worker, a failing store, a missing policy, lost files."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.state import database
from kfm_pipelines.state.database import LOCK_SECONDS
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.stores import Failures, WorkStore
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.runs.batches import applied, publish, publish_due
from kfm_pipelines_tests.fixtures.sites.site import Site

HOLD = "SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE"


def test_a_key_locked_by_a_hanging_worker_is_an_error_after_seconds(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LOCK_SECONDS < 30  # many such waits fit into a visibility timeout of 120 s and five receives
    put = site.put(0)
    site.drain()
    site.services.database.close()
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.2)
    with psycopg.connect(site.environment["KFM_POSTGRES_URL"]) as hanging:
        hanging.execute(HOLD, {"key": site.key()})
        with pytest.raises(ServiceUnavailable, match="lock timeout"):
            Claims(site.services.database, "another", 2).take(site.key())
        site.send(site.auto_update_message(put))
        with pytest.raises(ServiceUnavailable, match="lock timeout"):
            site.drain()


PLACES = ("work/masked", "work/staged", "reports", "catalog")


@pytest.mark.slow
def test_a_failed_write_affects_one_key_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writes of four keys fail once, each in another place; the fifth key is not affected."""
    for hour in range(5):
        site.put(hour)
    failing = {(place, site.key(hour)) for hour, place in enumerate(PLACES, 1)}
    write_all = WorkStore.write_all

    def failing_once(store: WorkStore, files: Mapping[str, bytes]) -> Failures:
        failures = Failures()
        for path in files:
            for place, key in [one for one in failing if path.startswith(one[0]) and one[1] in path]:
                failing.remove((place, key))
                failures[path] = ServiceUnavailable("No space left on device")
        return failures | write_all(store, {path: data for path, data in files.items() if path not in failures})

    monkeypatch.setattr(WorkStore, "write_all", failing_once)

    assert site.work() == {"keys": 5, "published": 5, "skipped": 0, "failed": 0}

    assert failing == set()
    runs = site.fetch("SELECT key, count(DISTINCT run_id) AS runs FROM kfm.wal GROUP BY key ORDER BY key")
    assert [row["runs"] for row in runs] == [1, 2, 2, 2, 2]
    assert site.tree("work") == {}


def test_lost_bytes_are_restored_not_skipped(site: Site) -> None:
    put = site.put(0)
    publish_due(site)
    before = site.tree()
    for minute, lost in enumerate(("catalog/*/items/*.json", "objects/sha256/*/*.parquet", "processed/*/*.parquet")):
        [path] = site.data.glob(lost)
        path.unlink()
        site.send(site.auto_update_message(put, event_time=put.window_start + timedelta(minutes=minute)))

        publish_due(site)

        assert site.tree() == before, lost
    assert applied(site.services) == {site.key(): 4}
    assert site.fetch("SELECT revision FROM kfm.revisions") == [{"revision": 1}]


def test_lost_bytes_are_restored_after_a_failed_attempt(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Item is as it was, so it does not show whether the restoration was completed."""
    put = site.put(0)
    publish_due(site)
    before = site.tree()
    [path] = site.data.glob("objects/sha256/*/*.parquet")
    path.unlink()
    site.send(site.auto_update_message(put, event_time=put.window_start + timedelta(minutes=1)))
    create_all, failing = FileStore.create_all, [True]

    def failing_once(store: FileStore, files: Mapping[str, bytes]) -> Failures:
        if any(path.endswith(".parquet") for path in files) and failing.pop():
            raise OSError(28, "No space left on device")
        return create_all(store, files)

    monkeypatch.setattr(FileStore, "create_all", failing_once)
    site.drain()
    publish(site.services, site.dataset, [site.key()], "failing")
    assert not path.exists()
    failing.append(False)
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    publish_due(site)
    assert site.tree() == before


def test_a_collection_that_cannot_be_written_is_reported_and_retried_later(site: Site) -> None:
    site.put(0)
    publish_due(site)
    site.services.database.execute("UPDATE kfm.collections SET changed = changed + 1")
    site.services.database.execute("UPDATE kfm.collection_pages SET changed = changed + 1")
    page = site.data / "catalog/usgs-streamflow/by-time/2025/12/04/catalog.json"
    page.unlink()
    folder = page.with_name("catalog.json.part")
    folder.mkdir()

    [problem] = refresh_stale_collections(site.services)
    assert problem.startswith(
        "collection of usgs/streamflow: catalog/usgs-streamflow/by-time/2025/12/04/catalog.json cannot be written"
    )

    folder.rmdir()
    assert refresh_stale_collections(site.services) == []
    assert site.fetch("SELECT changed = written AS up_to_date FROM kfm.collections") == [{"up_to_date": True}]
    assert site.fetch("SELECT changed = written AS up_to_date FROM kfm.collection_pages") == [{"up_to_date": True}]


def test_a_key_whose_policy_is_gone_fails(site: Site) -> None:
    site.put(0)
    (Path(site.environment["KFM_RESOURCES"]) / "policies/not-sensitive.yaml").unlink()
    site = Site(Services(site.services.settings), site.environment, site.root)

    publish_due(site)

    [letter] = site.fetch("SELECT triage, reason FROM kfm.dead_letters")
    assert letter["triage"] == "care"
    assert [row["step"] for row in site.fetch("SELECT step FROM kfm.wal ORDER BY id")] == ["begin", "fail"]
    assert site.fetch("SELECT state FROM kfm.inbox") == [{"state": "failed"}]

"""One bad part must not stop the others: a hanging worker, a store that fails, a broken declaration, lost bytes."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import LOCK_SECONDS
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.sites.site import Site

HOLD = "SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE"


@pytest.mark.slow
def test_a_key_locked_by_a_hanging_worker_is_an_error_after_seconds_not_a_wait_for_ever(site: Site) -> None:
    put = site.put(0)
    site.drain()
    with psycopg.connect(site.environment["KFM_POSTGRES_URL"]) as hanging:
        hanging.execute(HOLD, {"key": site.key()})
        with pytest.raises(ServiceUnavailable, match="lock timeout"):
            Claims(site.services.database, "another", 2).take(site.key())
        site.send(site.auto_update_message(put))
        with pytest.raises(ServiceUnavailable, match="lock timeout"):
            site.drain()
    assert LOCK_SECONDS < 30  # a visibility timeout of 120 s and five receives leave room for many such waits


def test_a_publication_under_way_does_not_keep_the_other_leases_from_being_renewed(site: Site) -> None:
    for hour in range(2):
        site.put(hour)
    site.drain()
    claims = Claims(site.services.database, "run", 1)
    for hour in range(2):
        claims.take(site.key(hour))
    before = site.fetch("SELECT key, lease_until FROM kfm.keys ORDER BY key")
    with psycopg.connect(site.environment["KFM_POSTGRES_URL"]) as publishing:
        publishing.execute(HOLD, {"key": site.key(0)})
        claims.renew()
    after = site.fetch("SELECT key, lease_until FROM kfm.keys ORDER BY key")

    assert after[0] == before[0]
    assert after[1]["lease_until"] > before[1]["lease_until"]


def failing_once(do: Callable[..., None], where: str) -> Callable[..., None]:
    failed: list[str] = []

    def write(store: FileStore, path: str, data: bytes) -> None:
        if where in path and not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        do(store, path, data)

    return write


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["work/restricted", "work/masked", "work/staged"])
def test_a_write_that_fails_is_one_keys_trouble(site: Site, monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    for hour in range(3):
        site.put(hour)
    monkeypatch.setattr(FileStore, "write", failing_once(FileStore.write, f"{tier}/usgs-streamflow/{site.key(1)}"))

    assert site.work() == {"keys": 3, "published": 3, "skipped": 0, "failed": 0}

    runs = site.fetch("SELECT key, count(DISTINCT run_id) AS runs FROM kfm.wal GROUP BY key ORDER BY key")
    assert [row["runs"] for row in runs] == [1, 2, 1]
    assert site.tree("work") == {}


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["catalog/*/items/*.json", "objects/sha256/*/*.parquet", "processed/*/*.parquet"])
def test_lost_bytes_are_restored_not_skipped(site: Site, lost: str) -> None:
    put = site.put(0)
    site.work()
    before = site.tree()
    [path] = site.data.glob(lost)
    path.unlink()

    site.send(site.auto_update_message(put))

    assert site.work()["published"] == 1
    assert site.tree() == before
    assert site.fetch("SELECT revision FROM kfm.revisions") == [{"revision": 1}]


def test_a_collection_that_cannot_be_written_is_named_and_left_for_later(site: Site) -> None:
    site.put(0)
    site.work()
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


@pytest.mark.slow
def test_a_key_whose_policy_is_gone_fails_with_a_trace_in_the_log(site: Site) -> None:
    site.put(0)
    (Path(site.environment["KFM_RESOURCES"]) / "policies/not-sensitive.yaml").unlink()
    site = Site(Services(site.services.settings), site.environment, site.root)

    assert site.work() == {"keys": 1, "published": 0, "skipped": 0, "failed": 1}

    [letter] = site.fetch("SELECT triage, reason FROM kfm.dead_letters")
    assert letter["triage"] == "care"
    assert [row["step"] for row in site.fetch("SELECT step FROM kfm.wal ORDER BY id")] == ["begin", "fail"]
    assert site.fetch("SELECT state FROM kfm.inbox") == [{"state": "failed"}]

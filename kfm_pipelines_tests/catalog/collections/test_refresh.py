"""Collections are written page by page: one more key costs the same however many there are, and the order of
publication makes no difference. Keys are inserted directly, because there are hundreds of them."""

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from kfm_pipelines.catalog.collections.pages import mark_pages_stale
from kfm_pipelines.catalog.collections.refresh import refresh_collection, refresh_stale_collections
from kfm_pipelines.catalog.stac.item import page_of
from kfm_pipelines.state.revisions import mark_collection_changed
from kfm_pipelines.stores import Failures
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.sites.site import START, Site

DATASET = "usgs/streamflow"
HOURS = [START + timedelta(hours=hour) for hour in (0, 1, 30, 800)]
PAGES = "catalog/usgs-streamflow/by-time"


def key_of(label: str) -> str:
    return f"usgs-streamflow:kansas_statewide:none:{label}:v1-0-0"


def hour_key(start: datetime) -> str:
    return key_of(f"{start:%Y-%m-%dT%H}Z")


def publish(site: Site, starts: Sequence[datetime]) -> None:
    """Inserts the rows that a collection depends on."""
    with site.services.database.transaction() as connection, connection.cursor() as cursor:
        facts = [{"key": hour_key(start), "start": start, "dataset": DATASET} for start in starts]
        cursor.executemany(
            """
            INSERT INTO kfm.keys (key, dataset, window_start, window_end)
            VALUES (%(key)s, %(dataset)s, %(start)s, %(start)s + interval '1 hour')
            """,
            facts,
        )
        cursor.executemany(
            """
            INSERT INTO kfm.revisions
                (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, bbox, run_id)
            VALUES (%(key)s, 1, 1, %(key)s, 'f', %(key)s, 'i', 10, 100,
                    ARRAY[-102 + extract(hour from %(start)s)::float8 / 10, 37, -95, 40], 'run')
            """,
            facts,
        )
        for one in facts:
            mark_pages_stale(connection, DATASET, [str(one["key"])])
        mark_collection_changed(connection, DATASET)


def written(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refreshes the collection and returns the paths it writes."""
    paths: list[str] = []
    write_all = FileStore.write_all

    def counting(store: FileStore, files: Mapping[str, bytes]) -> Failures:
        paths.extend(path for path in files if not path.startswith("catalog/keys/"))  # once for all
        return write_all(store, files)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "write_all", counting)
        assert refresh_collection(site.services, site.dataset)
    return paths


def test_one_more_key_costs_the_same_however_many_there_are(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(site, HOURS[:1])
    assert written(site, monkeypatch) == [
        f"{PAGES}/2025/12/04/dcat.jsonld",
        f"{PAGES}/2025/12/04/catalog.json",
        f"{PAGES}/2025/12/catalog.json",
        f"{PAGES}/2025/catalog.json",
        "catalog/usgs-streamflow/collection.json",
        "catalog/kfm-stac-profile-v1.schema.json",
        "catalog/dcat.jsonld",
        "catalog/catalog.json",
    ]
    publish(site, HOURS[1:2])
    second = [
        f"{PAGES}/2025/12/04/dcat.jsonld",
        f"{PAGES}/2025/12/04/catalog.json",
        "catalog/usgs-streamflow/collection.json",
        "catalog/dcat.jsonld",
    ]
    assert written(site, monkeypatch) == second

    publish(site, [START + timedelta(hours=hour) for hour in range(24, 24 + 700)])
    assert len(written(site, monkeypatch)) == 2 * 30 + 2 + 1 + 2
    publish(site, [START + timedelta(hours=2)])
    assert written(site, monkeypatch) == second[:-1]  # nothing in the catalog of all datasets changed
    publish(site, [START + timedelta(hours=3000)])
    assert written(site, monkeypatch) == [
        f"{PAGES}/2026/04/08/dcat.jsonld",
        f"{PAGES}/2026/04/08/catalog.json",
        f"{PAGES}/2026/04/catalog.json",
        f"{PAGES}/2026/catalog.json",
        "catalog/usgs-streamflow/collection.json",
        "catalog/dcat.jsonld",
    ]
    assert not refresh_collection(site.services, site.dataset)

    collection = json.loads((site.data / "catalog/usgs-streamflow/collection.json").read_text())
    assert collection["kfm:totals"] == {"items": 704, "rows": 7_040, "bytes": 70_400}
    assert collection["extent"]["temporal"]["interval"] == [["2025-12-04T00:00:00Z", "2026-04-08T01:00:00Z"]]
    assert collection["extent"]["spatial"]["bbox"] == [[-102.0, 37.0, -95.0, 40.0]]
    assert [link["title"] for link in collection["links"] if link["rel"] == "child"] == ["2025", "2026"]


def test_the_order_of_publication_makes_no_difference(site: Site) -> None:
    trees = []
    for order in (HOURS, HOURS[::-1]):
        for start in order:
            publish(site, [start])
            assert refresh_stale_collections(site.services) == []
        trees.append(site.tree("catalog"))
        for table in ("collection_pages", "collections", "revisions", "keys"):
            site.services.database.execute(f"DELETE FROM kfm.{table}")
        shutil.rmtree(site.data / "catalog")
        site.services.store.recheck_shared()
    publish(site, HOURS)
    assert refresh_stale_collections(site.services) == []
    assert site.tree("catalog") == trees[0] == trees[1]


def test_windows_of_several_lengths_are_on_pages_of_their_own(site: Site) -> None:
    labels = ["2025-12-04T00Z", "2025-12-04", "2025-12", "0999-01-31", "2026-W01", "2025"]
    rows = site.services.database.fetch(
        "SELECT key, kfm.page_of(key) AS page FROM unnest(%(keys)s::text[]) AS key", {"keys": list(map(key_of, labels))}
    )
    assert [row["page"] for row in rows] == ["2025/12/04", "2025/12", "2025", "0999/01", "2026", "2025"]
    assert [row["page"] for row in rows] == [page_of(row["key"]) for row in rows]


def test_the_collection_shows_the_result_of_the_last_scan(site: Site) -> None:
    def status() -> object:
        with site.services.database.transaction() as connection:
            mark_collection_changed(connection, DATASET)
        assert refresh_stale_collections(site.services) == []
        return json.loads((site.data / "catalog/usgs-streamflow/collection.json").read_text())["kfm:qa"]

    publish(site, HOURS[:2])
    for key in map(hour_key, HOURS[:2]):
        site.services.database.execute(
            "INSERT INTO kfm.scanned (key, revision, errors, found) VALUES (%(key)s, 1, 1, 'x')", {"key": key}
        )
    assert status() == {"status": "red", "keys_with_errors": 2}
    site.services.database.execute("UPDATE kfm.scanned SET errors = 0")
    assert status() == {"status": "green", "keys_with_errors": 0}


def test_without_publications_no_collection_is_written(site: Site) -> None:
    with site.services.database.transaction() as connection:
        mark_collection_changed(connection, DATASET)
    assert refresh_stale_collections(site.services) == []
    assert site.tree("catalog") == {}

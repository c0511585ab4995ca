"""One event, end to end: object, notice, run, published Item."""

import json
from collections.abc import Iterator

import pyarrow.parquet as pq
import pystac
import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site, opened_site

HOURS = 3


@pytest.fixture(scope="module")
def published(
    stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, list[Put]]]:
    """A site with three published keys, and their objects. No test may change a key that another looks at."""
    root = tmp_path_factory.mktemp("published")
    with opened_site(root / "site", stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        puts = [site.put(hour) for hour in range(HOURS)]
        assert site.work() == {"keys": HOURS, "published": HOURS, "skipped": 0, "failed": 0}
        yield site, puts


def test_objects_in_the_bucket_become_published_keys(published: tuple[Site, list[Put]]) -> None:
    site, _ = published
    item = json.loads((site.data / f"catalog/usgs-streamflow/items/{site.key()}.json").read_text())
    table = pq.read_table(site.data / f"processed/usgs-streamflow/{site.key()}.parquet")
    assert item["properties"]["table:row_count"] == table.num_rows > 0
    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "succeeded"}]


def test_the_catalog_can_be_walked_and_every_item_leads_to_its_bytes(published: tuple[Site, list[Put]]) -> None:
    site, _ = published
    catalog = pystac.Catalog.from_file(str(site.data / "catalog/catalog.json"))
    items = list(catalog.get_items(recursive=True))

    assert [item.id for item in items] == [site.key(hour) for hour in range(HOURS)]
    digests = site.tree("objects")
    for item in items:
        asset = item.assets["data"]
        name = asset.extra_fields["file:checksum"].removeprefix("1220")
        assert digests[f"objects/sha256/{name[:2]}/{name}.parquet"] == name
        assert str(asset.get_absolute_href()).endswith(f"/objects/sha256/{name[:2]}/{name}.parquet")


def test_the_same_events_again_change_nothing(published: tuple[Site, list[Put]]) -> None:
    site, [put, *_] = published
    before = site.tree()

    site.send(site.s3_message(put))
    site.send(site.wrapped(site.s3_message(put)))
    counts = site.drain()

    assert (counts.recorded, counts.duplicates) == (0, 2)
    assert site.work()["keys"] == 0
    assert site.tree() == before


def test_a_second_notice_in_another_shape_is_skipped(published: tuple[Site, list[Put]]) -> None:
    site, [put, *_] = published
    before = site.tree()

    site.send(site.auto_update_message(put))

    assert site.work() == {"keys": 1, "published": 0, "skipped": 1, "failed": 0}
    assert site.tree() == before


def test_a_changed_object_is_a_new_revision(published: tuple[Site, list[Put]]) -> None:
    site, _ = published
    before = site.tree("objects")
    site.put(0, streamflow_object(START, seed=1)[1])

    assert site.work() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}
    revisions = site.fetch(f"SELECT revision FROM kfm.revisions WHERE key = '{site.key()}' ORDER BY 1")
    assert [row["revision"] for row in revisions] == [1, 2]
    assert len([path for path in site.tree("objects").keys() - before.keys() if path.endswith(".parquet")]) == 1

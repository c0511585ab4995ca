"""One event, end to end: object, notice, run, published Item."""

import json

import pyarrow.parquet as pq
import pystac

from kfm_pipelines_tests.fixtures.sites.site import Site


def test_objects_in_the_bucket_become_published_keys(site: Site) -> None:
    for hour in range(3):
        site.put(hour)

    assert site.work() == {"keys": 3, "published": 3, "skipped": 0, "failed": 0}

    item = json.loads((site.data / f"catalog/usgs-streamflow/items/{site.key()}.json").read_text())
    table = pq.read_table(site.data / f"processed/usgs-streamflow/{site.key()}.parquet")
    assert item["properties"]["table:row_count"] == table.num_rows > 0
    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "succeeded"}]


def test_the_catalog_can_be_walked_and_every_item_leads_to_its_bytes(site: Site) -> None:
    for hour in range(3):
        site.put(hour)
    site.work()

    catalog = pystac.Catalog.from_file(str(site.data / "catalog/catalog.json"))
    items = list(catalog.get_items(recursive=True))

    assert [item.id for item in items] == [site.key(hour) for hour in range(3)]
    digests = site.tree("objects")
    for item in items:
        asset = item.assets["data"]
        name = asset.extra_fields["file:checksum"].removeprefix("1220")
        assert digests[f"objects/sha256/{name[:2]}/{name}.parquet"] == name
        assert str(asset.get_absolute_href()).endswith(f"/objects/sha256/{name[:2]}/{name}.parquet")


def test_the_same_events_again_change_nothing(site: Site) -> None:
    put = site.put()
    site.work()
    before = site.tree()

    site.send(site.s3_message(put))
    site.send(site.wrapped(site.s3_message(put)))
    tally = site.drain()

    assert (tally.recorded, tally.duplicates) == (0, 2)
    assert site.work()["keys"] == 0
    assert site.tree() == before


def test_a_second_notice_in_another_shape_is_skipped(site: Site) -> None:
    put = site.put()
    site.work()
    before = site.tree()

    site.send(site.auto_update_message(put))

    assert site.work() == {"keys": 1, "published": 0, "skipped": 1, "failed": 0}
    assert site.tree() == before


def test_a_changed_object_is_a_new_revision(site: Site) -> None:
    site.put(0)
    site.work()
    _, other_sample = _sample_of_other_values()
    site.put(0, other_sample)

    assert site.work() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}
    assert [row["revision"] for row in site.fetch("SELECT revision FROM kfm.revisions ORDER BY 1")] == [1, 2]
    assert len([path for path in site.tree("objects") if path.endswith(".parquet")]) == 2


def _sample_of_other_values() -> tuple[str, bytes]:
    from kfm_pipelines.producer.samples import streamflow_object
    from kfm_pipelines_tests.fixtures.sites.site import START

    return streamflow_object(START, seed=1)

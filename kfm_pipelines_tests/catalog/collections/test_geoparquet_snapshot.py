"""All Items of a collection as one table: ordinary tools read it, and it is is_linked only when it is there."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import geopandas
import pyarrow.parquet as pq
import pytest
import rustac
from click.testing import CliRunner

from kfm_pipelines.catalog.collections import tables
from kfm_pipelines.catalog.collections.geoparquet_snapshot import take_snapshot
from kfm_pipelines.catalog.stac.geoparquet import items_table
from kfm_pipelines.cli.main import kfm
from kfm_pipelines.errors import IntegrityBroken, ServiceUnavailable
from kfm_pipelines_tests.fixtures.catalog.published_hours import publish_hours
from kfm_pipelines_tests.fixtures.catalog.release import FACTS, KANSAS, STREAMFLOW, item_of
from kfm_pipelines_tests.fixtures.sites.site import Site

SECOND = dataclasses.replace(FACTS, key=FACTS.key.replace("T00Z", "T01Z"))
NOWHERE = dataclasses.replace(FACTS, key=FACTS.key.replace("T00Z", "T02Z"), bbox=None)


def items(*facts: Any) -> list[dict[str, Any]]:
    return [json.loads(item_of(STREAMFLOW, one)) for one in facts]


def test_the_order_of_items_makes_no_difference() -> None:
    given = items(FACTS, SECOND, NOWHERE)
    assert items_table(given) == items_table(given[::-1])


def test_stac_tools_read_the_same_items_back(tmp_path: Path) -> None:
    (tmp_path / "items.parquet").write_bytes(items_table(items(SECOND, FACTS)))
    read = rustac.read_sync(str(tmp_path / "items.parquet"))["features"]
    assert [one["properties"] for one in read] == [one["properties"] for one in items(FACTS, SECOND)]
    assert [one["geometry"] for one in read] == [one["geometry"] for one in items(FACTS, SECOND)]
    assert [list(one["bbox"]) for one in read] == [list(KANSAS)] * 2
    hrefs = {link["rel"]: link["href"] for link in read[0]["links"]}
    assert (hrefs["root"], hrefs["collection"]) == ("../catalog.json", "./collection.json")
    assert read[0]["assets"]["data"]["href"].startswith("../../objects/")


@pytest.mark.parametrize(("facts", "placed"), [((FACTS, NOWHERE), 1), ((NOWHERE,), 0)])
def test_a_table_may_have_items_without_a_place(tmp_path: Path, facts: tuple[Any, ...], placed: int) -> None:
    path = tmp_path / "items.parquet"
    path.write_bytes(items_table(items(*facts)))
    frame = geopandas.read_parquet(path)
    assert (len(frame), int(frame.geometry.notna().sum())) == (len(facts), placed)
    assert json.loads(pq.read_schema(path).metadata[b"stac-geoparquet"]) == {"version": "1.0.0"}


def test_a_snapshot_is_taken_when_something_was_published(site: Site) -> None:
    def is_linked() -> bool:
        return "assets" in json.loads((site.data / "catalog/usgs-streamflow/collection.json").read_text())

    path = site.data / "catalog/usgs-streamflow/items.parquet"
    assert take_snapshot(site.services, site.dataset).note == "nothing is published"
    assert site.tree("catalog") == {}
    publish_hours(site, 0)
    assert not is_linked()

    taken = take_snapshot(site.services, site.dataset)
    assert (taken.items, taken.bytes, is_linked()) == (1, path.stat().st_size, True)
    before = path.read_bytes()
    assert take_snapshot(site.services, site.dataset).note == "nothing has changed since the last one"
    path.unlink()
    assert take_snapshot(site.services, site.dataset).items == 1
    assert path.read_bytes() == before
    publish_hours(site, 1)
    assert take_snapshot(site.services, site.dataset).items == 2
    assert geopandas.read_parquet(path)["id"].tolist() == [site.key(0), site.key(1)]

    result = CliRunner().invoke(kfm, ["catalog", "snapshot", "usgs/streamflow", "--anyway", "--json"])
    assert json.loads(result.output)["snapshots"] == [
        {"dataset": "usgs/streamflow", "items": 2, "bytes": path.stat().st_size, "note": ""}
    ]

    # An older one does not replace a newer one.
    before = path.read_bytes()
    with site.services.database.transaction() as connection:
        tables.record_mark(connection, tables.ITEMS_SNAPSHOT, {"usgs/streamflow": 3})
    with pytest.raises(ServiceUnavailable, match="changed during each of 3 attempts"):
        take_snapshot(site.services, site.dataset, anyway=True)
    assert path.read_bytes() == before
    with site.services.database.transaction() as connection:
        tables.record_mark(connection, tables.ITEMS_SNAPSHOT, {"usgs/streamflow": 2})

    # What somebody else wrote does not get under our seal.
    item = site.data / f"catalog/usgs-streamflow/items/{site.key(1)}.json"
    item.write_text(item.read_text().replace("Feature", "Feature "))
    with pytest.raises(IntegrityBroken, match="is not what was published"):
        take_snapshot(site.services, site.dataset, anyway=True)
    assert path.read_bytes() == before

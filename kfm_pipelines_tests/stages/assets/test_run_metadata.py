"""What a check tells: which keys are red first, whatever else there is to tell. What a published key shows."""

import base64
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kfm_pipelines.care.review.page import maps
from kfm_pipelines.care.review.page.maps import draw_map
from kfm_pipelines.care.review.page.places import Frame, MapPlaces
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.gates import Finding, Severity, Verdict
from kfm_pipelines.orchestration.metadata import location_metadata
from kfm_pipelines.stages import previews as published_maps
from kfm_pipelines.stages.assets.run_metadata import check_result
from kfm_pipelines.stages.handoff import KeyVerdict
from kfm_pipelines.state.revisions import current_revision
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.declarations import resources_in
from kfm_pipelines_tests.fixtures.runs.dispatch import materialized
from kfm_pipelines_tests.fixtures.sites.site import Site


def judgement(key: str, *severities: Severity, gate: str = "qa") -> KeyVerdict:
    findings = [Finding(f"rule-{n}", severity, "column", "this", "that") for n, severity in enumerate(severities)]
    return KeyVerdict(key, Verdict(gate, tuple(findings)))


def told(*judgements: KeyVerdict) -> list[tuple[str, str]]:
    table = check_result("qa", judgements).metadata["findings"]
    assert isinstance(table, dg.TableMetadataValue)
    return [(str(record.data["key"]), str(record.data["severity"])) for record in table.records]


def test_no_key_hides_another() -> None:
    many = judgement("a", *[Severity.WARN] * 30, *[Severity.ERROR] * 30)
    shown = told(many, judgement("b", Severity.WARN), judgement("c", Severity.INFO, Severity.ERROR))
    assert shown[:3] == [("a", "error"), ("c", "error"), ("b", "warn")]
    assert len(shown) == 50
    assert check_result("qa", [many]).metadata["findings_in_all"] == dg.IntMetadataValue(60)


def test_a_check_says_how_many_keys_are_red() -> None:
    red, green = judgement("a", Severity.ERROR), judgement("b", Severity.WARN)
    assert check_result("qa", [red]).description == "1 key is red"
    assert check_result("qa", [green, green]).description == "2 keys are green"
    assert check_result("qa", [red, green]).description == "1 of 2 keys are red"
    assert check_result("qa", [green]).description == "1 key is green"
    assert check_result("qa", [judgement("a", gate="schema")]).description == "no key reached this gate"


def columns_of(resources: Path, *dataset: str) -> dict[str, dg.TableColumn] | None:
    key = dg.AssetKey([*dataset, "publish"])
    metadata = build_definitions(resources).resolve_assets_def(key).specs_by_key[key].metadata
    schema = metadata.get("dagster/column_schema")
    return {column.name: column for column in schema.columns} if isinstance(schema, dg.TableSchema) else None


def test_a_published_key_shows_where_and_what_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours with the same gauges are drawn once, those of the next run too."""
    drawn = []

    def counting(places: MapPlaces, frame: Frame, *, title: str, **others: Any) -> bytes:
        drawn.append(title)
        return draw_map(places, frame, title=title, **others)

    monkeypatch.setattr(maps, "draw_map", counting)
    published_maps._map_cache.clear()
    site.put(0)
    site.put(1)
    site.work()

    metadata = materialized(site.dataset)
    assert set(metadata) == {site.key(0), site.key(1)}
    said, layout = metadata[site.key()], Layout(site.dataset.pipeline)
    revision = current_revision(site.services.database, site.key())
    assert revision is not None
    assert said["dagster/row_count"].value == revision.rows == 68
    assert said["bytes"].value == (site.data / layout.processed_data(site.key())).stat().st_size
    assert said["item"] == dg.MetadataValue.path(str(site.data / layout.item(site.key())))
    assert said["data"] == dg.MetadataValue.path(str(site.data / layout.processed_data(site.key())))
    columns = {column.name: column for column in said["dagster/column_schema"].value.columns}
    assert list(columns) == [column.name for column in site.dataset.table.columns]
    assert columns["discharge_cfs"].description == "Discharge, in ft3/s"
    assert (columns["discharge_cfs"].constraints.nullable, columns["geometry"].constraints.nullable) == (True, False)
    before, png = said["map"].value.split("base64,")
    assert before == "![where it is](data:image/png;"
    assert base64.b64decode(png.removesuffix(")")).startswith(b"\x89PNG")
    assert len(said["map"].value) < 50_000
    assert metadata[site.key(1)]["map"] == said["map"]

    site.put(3)
    site.work()
    assert materialized(site.dataset)[site.key(3)]["map"] == said["map"]
    assert drawn == [site.dataset.title]

    with monkeypatch.context() as patch:
        patch.setattr(published_maps, "_draw_cached", lambda *_: 1 / 0)
        site.put(2)
        assert site.work()["published"] == 1
    assert "map" not in materialized(site.dataset)[site.key(2)]
    assert materialized(site.dataset)[site.key(2)]["dagster/row_count"].value == 68


def test_only_so_many_pictures_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    releases = {str(n): {"bbox": (0, 0, 1, 1), "bytes": 10, "content_hash": str(n)} for n in range(9)}
    releases["nowhere"] = {"bbox": None, "bytes": 10, "content_hash": "0"}
    releases["large"] = {"bbox": (0, 0, 1, 1), "bytes": 5 * 1024**2, "content_hash": "0"}
    monkeypatch.setattr(published_maps, "_places", lambda *given: int(given[-1]) // 2 * 2)
    monkeypatch.setattr(published_maps, "_appearance_digest", lambda places: places)
    monkeypatch.setattr(published_maps, "_draw_cached", lambda *given: str(given[-1]).encode())
    monkeypatch.setattr(published_maps, "MAX_MAPS_PER_RUN", 2)
    pictures = published_maps.published_maps(None, None, releases)  # type: ignore[arg-type]
    assert pictures == {"0": b"0", "1": b"0", "2": b"2", "3": b"2"}


def test_only_so_many_pictures_are_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those used last."""
    drawn = []

    def counting(places: MapPlaces, *_: object, **__: object) -> bytes:
        drawn.append(places.without_place)
        return b"png"

    monkeypatch.setattr(maps, "draw_map", counting)
    monkeypatch.setattr(published_maps, "_map_cache", {})
    monkeypatch.setattr(published_maps, "MAX_CACHED_MAPS", 2)
    for without_place in (1, 2, 1, 3, 1, 2):
        places = MapPlaces(without_place=without_place)
        published_maps._draw_cached(site.services, site.dataset, published_maps._appearance_digest(places), places)
    assert drawn == [1, 2, 3, 2]
    assert len(published_maps._map_cache) == 2


def test_readers_columns_are_known_before_anything_is_published(tmp_path: Path) -> None:
    resources = resources_in(tmp_path)
    open_to_all, masked = columns_of(resources, "usgs", "streamflow"), columns_of(resources, "heritage", "sites")
    assert open_to_all is not None
    assert open_to_all["latitude"].type == "float64"
    assert masked is not None
    assert "easting" not in masked
    assert masked["record"].constraints.unique
    (resources / "policies/heritage-sites.yaml").unlink()
    assert columns_of(resources, "heritage", "sites") is None
    assert columns_of(resources, "usgs", "streamflow") == open_to_all


@pytest.mark.parametrize(
    ("store", "shown_as"),
    [
        ("https://example.org/kfm", dg.MetadataValue.url("https://example.org/kfm/a/b.json")),
        ("file:///srv/k%20fm", dg.MetadataValue.path("/srv/k fm/a/b.json")),
        ("s3://bucket/prefix", dg.MetadataValue.path("s3://bucket/prefix/a/b.json")),
    ],
)
def test_a_place_is_a_link_only_where_a_browser_can_follow(store: str, shown_as: dg.MetadataValue[Any]) -> None:
    assert location_metadata(store, "a/b.json") == shown_as

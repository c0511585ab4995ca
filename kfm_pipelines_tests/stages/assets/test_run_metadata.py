"""Check results list the worst finding of every key first; a published key has its place, columns and size."""

import base64
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kfm_pipelines.care.review.page import maps
from kfm_pipelines.care.review.page.maps import draw_map
from kfm_pipelines.care.review.page.places import MapPlaces
from kfm_pipelines.declarations import Extent
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.gates import Finding, Severity, Verdict
from kfm_pipelines.orchestration.names import location_metadata
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.stages import previews
from kfm_pipelines.stages.assets.run_metadata import check_result
from kfm_pipelines.stages.validate.table_gates import KeyVerdict, gate_record
from kfm_pipelines.state.revisions import current_revision
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.declarations import resources_in
from kfm_pipelines_tests.fixtures.runs.dispatch import materialized
from kfm_pipelines_tests.fixtures.sites.site import Site


def key_verdict(key: str, *severities: Severity, gate: str = "qa") -> KeyVerdict:
    findings = [Finding(f"rule-{n}", severity, "column", "this", "that") for n, severity in enumerate(severities)]
    verdict = Verdict(gate, tuple(findings))
    return KeyVerdict(key, verdict, gate_record(verdict, "0" * 64))


def listed(*verdicts: KeyVerdict) -> list[tuple[str, str]]:
    table = check_result("qa", verdicts).metadata["findings"]
    assert isinstance(table, dg.TableMetadataValue)
    return [(str(record.data["key"]), str(record.data["severity"])) for record in table.records]


def test_no_key_hides_another() -> None:
    many = key_verdict("a", *[Severity.WARN] * 30, *[Severity.ERROR] * 30)
    found = listed(many, key_verdict("b", Severity.WARN), key_verdict("c", Severity.INFO, Severity.ERROR))
    assert found[:3] == [("a", "error"), ("c", "error"), ("b", "warn")]
    assert len(found) == 50
    assert check_result("qa", [many]).metadata["findings_in_all"] == dg.IntMetadataValue(60)


def test_a_check_counts_the_red_keys() -> None:
    red, green = key_verdict("a", Severity.ERROR), key_verdict("b", Severity.WARN)
    assert check_result("qa", [red]).description == "1 key is red"
    assert check_result("qa", [green, green]).description == "2 keys are green"
    assert check_result("qa", [red, green]).description == "1 of 2 keys are red"
    assert check_result("qa", [green]).description == "1 key is green"
    assert check_result("qa", [key_verdict("a", gate="schema")]).description == "no key reached this gate"


def columns_of(resources: Path, *dataset: str) -> dict[str, dg.TableColumn] | None:
    key = dg.AssetKey([*dataset, "publish"])
    metadata = build_definitions(resources).resolve_assets_def(key).specs_by_key[key].metadata
    schema = metadata.get("dagster/column_schema")
    return {column.name: column for column in schema.columns} if isinstance(schema, dg.TableSchema) else None


def test_a_published_key_has_its_place_columns_and_size(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys with the same gauges share one map, also in the next run; without a map they are published all the same."""
    drawn = []

    def counting(places: MapPlaces, frame: Extent, *, title: str, **others: Any) -> bytes:
        drawn.append(title)
        return draw_map(places, frame, title=title, **others)

    monkeypatch.setattr(maps, "draw_map", counting)
    previews._map_cache.clear()
    site.put(0)
    site.put(1)
    site.work()

    metadata = materialized(site.dataset)
    assert set(metadata) == {site.key(0), site.key(1)}
    values, layout = metadata[site.key()], Layout(site.dataset.pipeline)
    revision = current_revision(site.services.database, site.key())
    assert revision is not None
    assert values["dagster/row_count"].value == revision.rows == 68
    assert values["bytes"].value == (site.data / layout.processed_data(site.key())).stat().st_size
    assert values["item"] == dg.MetadataValue.path(str(site.data / layout.item(site.key())))
    assert values["data"] == dg.MetadataValue.path(str(site.data / layout.processed_data(site.key())))
    columns = {column.name: column for column in values["dagster/column_schema"].value.columns}
    assert list(columns) == [column.name for column in site.dataset.table.columns]
    assert columns["discharge_cfs"].description == "Discharge, in ft3/s"
    assert (columns["discharge_cfs"].constraints.nullable, columns["geometry"].constraints.nullable) == (True, False)
    before, png = values["map"].value.split("base64,")
    assert before == "![where it is](data:image/png;"
    picture = base64.b64decode(png.removesuffix(")"))
    assert picture.startswith(b"\x89PNG")
    assert len(values["map"].value) < 50_000
    assert metadata[site.key(1)]["map"] == values["map"]

    tables = {revision.key: read_parquet((site.data / layout.processed_data(site.key())).read_bytes(), "it")}
    assert previews.published_maps(site.services, site.dataset, tables) == {revision.key: picture}
    assert drawn == [site.dataset.title]
    monkeypatch.setattr(previews, "_draw_cached", lambda *_: 1 / 0)
    assert previews.published_maps(site.services, site.dataset, tables) == {}


def test_published_columns_are_known_in_advance(tmp_path: Path) -> None:
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
    ("store", "expected"),
    [
        ("https://example.org/kfm", dg.MetadataValue.url("https://example.org/kfm/a/b.json")),
        ("file:///srv/k%20fm", dg.MetadataValue.path("/srv/k fm/a/b.json")),
        ("s3://bucket/prefix", dg.MetadataValue.path("s3://bucket/prefix/a/b.json")),
    ],
)
def test_a_location_is_a_link_only_where_a_browser_can_follow_it(store: str, expected: dg.MetadataValue[Any]) -> None:
    assert location_metadata(store, "a/b.json") == expected

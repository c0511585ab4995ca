"""A raster goes from its object to a published Item with the raster, a picture and a table, which `kfm verify` and the
official schemas accept."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from pystac.validation import validate_dict
from rasterio.io import MemoryFile
from rio_cogeo.cogeo import cog_validate

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.verify import load_trust_root, verify_all
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.catalog.official_schemas import official_validator
from kfm_pipelines_tests.fixtures.rasters.invented import geotiff, raster_dataset
from kfm_pipelines_tests.fixtures.runs.batches import publish_due
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow
PIECES = {"raster", "thumbnail", "data", "provenance"}


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Its streamflow dataset has rasters instead of tables; one of two keys has nothing but nodata."""
    root = tmp_path_factory.mktemp("rasters") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        _declare_rasters(opened)
        opened.put(0, geotiff(_rain(), pixel=0.001))
        opened.put(1, geotiff(np.full((3, 4), -1, np.float32), nodata=-1))
        publish_due(opened)
        yield opened


def _rain() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(5).gamma(2.0, 3.0, (600, 700)).astype(np.float32)


def _declare_rasters(site: Site, **raster: Any) -> None:
    declared = raster_dataset(h3_res="6", picture={"min": 0, "max": 30, "palette": "Blues"}, **raster)
    document = declared.model_dump(mode="json", exclude_unset=True, exclude={"table"})
    document["input"]["bucket"] = site.bucket
    path = site.root / "resources" / "datasets" / "usgs-streamflow.yaml"
    path.write_text(yaml.safe_dump(document))
    for candidate in (site.root / "resources" / "candidates").glob("usgs-streamflow*"):
        candidate.unlink()
    vars(site.services).pop("datasets")  # as a new process would read them


def item_of(site: Site, hour: int) -> dict[str, Any]:
    key = site.key(hour).replace(":none:", ":6:")
    path = site.data / "catalog" / "usgs-streamflow" / "items" / f"{key}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def test_it_is_published_with_raster_picture_and_table(site: Site) -> None:
    item = item_of(site, 0)
    assert set(item["assets"]) == PIECES
    asset = item["assets"]["raster"]
    assert (asset["proj:shape"], asset["proj:code"], asset["roles"]) == ([600, 700], "EPSG:4326", ["data"])
    assert asset["bands"][0]["statistics"]["maximum"] == pytest.approx(float(_rain().max()))
    path = (site.data / "catalog" / "usgs-streamflow" / "items" / asset["href"]).resolve()
    assert cog_validate(str(path), strict=True) == (True, [], [])
    with MemoryFile(path.read_bytes()) as file, file.open() as dataset:
        np.testing.assert_array_equal(dataset.read(1), _rain())


def test_everything_about_it_is_verified(site: Site) -> None:
    store = FileStore(site.data)
    verified = list(verify_all(store, load_trust_root(store, site.services.settings.signing_key, None)))
    assert [check for one in verified for check in one.failed] == []
    assert any("raster, checksum" in check.what for one in verified for check in one.checks)


def test_its_item_is_valid_by_the_official_schemas(site: Site) -> None:
    item = item_of(site, 0)
    assert all(any(f"/{name}/" in one for one in item["stac_extensions"]) for name in ("raster", "projection"))
    assert validate_dict(item, validator=official_validator())[1:] == item["stac_extensions"]


def test_a_raster_of_nodata_alone_is_refused_by_the_gate(site: Site) -> None:
    assert item_of(site, 1) == {}
    [row] = site.fetch("SELECT reason FROM kfm.dead_letters WHERE reason LIKE '%nodata%'")
    assert "raster, rain: expected at least one value, found nodata everywhere" in row["reason"]


def test_an_hour_without_a_value_is_published_where_that_is_declared(site: Site) -> None:
    _declare_rasters(site, nodata_share=1.0)
    site.put(2, geotiff(np.full((3, 4), -1, np.float32), nodata=-1))
    publish_due(site)
    item = item_of(site, 2)
    assert (item["properties"]["table:row_count"], set(item["assets"])) == (0, PIECES)
    np.testing.assert_allclose(item["bbox"], [-97.9, 38.7, -97.5, 39.0])
    test_everything_about_it_is_verified(site)

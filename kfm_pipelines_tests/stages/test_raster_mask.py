"""A masked raster shows nothing under a footprint, at any scale, in its picture, in its cells or in its statistics."""

import hashlib
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import shapely
from rasterio.io import MemoryFile

from kfm_pipelines.care.footprints import Footprints
from kfm_pipelines.care.governance import KeyRules
from kfm_pipelines.care.verifier import Evidence, verify
from kfm_pipelines.data_files import Attachments
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.parquet.parquet import write_published
from kfm_pipelines.raster.cog import read_cog, write_cog
from kfm_pipelines.raster.grid import Pixels
from kfm_pipelines.stages.compute.assemble import assemble
from kfm_pipelines.stages.compute.result import Computed
from kfm_pipelines.stages.raster_mask import mask_pixels, reassemble
from kfm_pipelines_tests.fixtures.care.raster_policy import raster_policy
from kfm_pipelines_tests.fixtures.rasters.invented import geotiff, raster_dataset

DATASET = raster_dataset(h3_res="6")
PLACE = shapely.Point(-97.31, 38.42)
SECRET_VALUE = 987.25  # of the pixel at the place, and of no other
PIXEL = 2 / 700
BLEND = {"restricted": {"raster": {"method": "aggregate", "resolution": 5}}}


def _pixel_at(place: shapely.Point) -> tuple[int, int]:
    return int((39.0 - place.y) / PIXEL), int((place.x + 98.0) / PIXEL)


@cache
def unmasked(crs: str = "EPSG:4326") -> Computed:
    """A square of two degrees, with overviews, whose largest value is at the place."""
    values = np.random.default_rng(3).gamma(2.0, 3.0, (700, 700)).astype(np.float32)
    values[_pixel_at(PLACE)] = SECRET_VALUE
    west, north, size = (-98.0, 39.0, PIXEL) if crs == "EPSG:4326" else (500_000, 4_300_000, 100)
    return assemble(read_cog(geotiff(values, west=west, north=north, pixel=size, crs=crs, nodata=-1), "one"), DATASET)


def rules(**changes: Any) -> KeyRules:
    return KeyRules(raster_policy(**changes), b"secret", None, Footprints((PLACE.buffer(0.005),), "digest"))


@cache
def masked_once() -> Computed:
    return mask_pixels(unmasked().attachments, DATASET, rules())[0]


def breaches(computed: Computed, **changes: Any) -> list[str]:
    """Judges a release as the gate does."""
    policy = raster_policy(**changes)
    files = computed.attachments.files
    properties = {"kfm:policy": policy.name, "kfm:labels": policy.labels, "anon:warning": "Places are masked"}
    item = {"properties": properties, "assets": {one.name: dict(one.properties) for one in files}}
    evidence = Evidence(
        data=write_published(computed.table, DATASET.table),
        item=str(item).replace("'", '"').replace("None", "null").encode(),
        documents={},
        original=b"",
        crosswalk=b"",
        rewrite=lambda: b"",
        files={one.file_name: one.data for one in files},
        footprints=rules(**changes).footprints.shapes,  # type: ignore[union-attr]
        reassemble=lambda raster: reassemble(raster, DATASET),
    )
    return [f"{one.rule}, {one.subject}" for one in verify(policy, DATASET, evidence)]


@pytest.mark.parametrize("changes", [{}, {"classes": BLEND}])
def test_the_place_is_hidden_everywhere(changes: dict[str, Any]) -> None:
    masked, measures = mask_pixels(unmasked().attachments, DATASET, rules(**changes))
    raster, picture = masked.attachments.files
    with MemoryFile(raster.data) as file:
        for level in (None, 0):
            with file.open(**({} if level is None else {"overview_level": level})) as opened:
                assert (opened.read() < 100).all()
    assert raster.properties["bands"][0]["statistics"]["maximum"] < 100
    assert max(masked.table.column("rain_max").drop_null().to_pylist()) < 100
    assert picture.data != unmasked().attachments.files[1].data
    assert measures["uncertainty_m"] > 10_000
    assert breaches(masked, **changes) == []


def test_what_is_far_away_stays_as_it_is() -> None:
    before = read_cog(unmasked().attachments.files[0].data, "before").values
    after = read_cog(masked_once().attachments.files[0].data, "after").values
    assert np.array_equal(before[:, :60], after[:, :60])
    assert 0.02 < np.isnan(after).mean() < 0.3


def test_it_is_made_the_same_way_twice() -> None:
    digests = set()
    for _ in range(2):
        masked, _ = mask_pixels(unmasked().attachments, DATASET, rules())
        digests.add(hashlib.sha256(b"".join(one.data for one in masked.attachments.files)).hexdigest())
    assert len(digests) == 1


def test_an_unmasked_raster_is_noticed_at_every_scale() -> None:
    found = breaches(unmasked())
    assert "raster-hidden, raster" in found
    assert "raster-hidden, overview 1" in found


def test_one_pixel_that_is_left_is_noticed() -> None:
    pixels = read_cog(masked_once().attachments.files[0].data, "masked")
    row, column = _pixel_at(PLACE)
    pixels.values[0, row, column + 2] = 4.0
    leaky = assemble(Pixels(pixels.grid, pixels.values), DATASET)
    assert "raster-hidden, raster" in breaches(leaky)


@pytest.mark.parametrize("piece", ["thumbnail", "table", "statistics", "overviews"])
def test_a_piece_that_does_not_follow_from_the_masked_raster_is_noticed(piece: str) -> None:
    open_release, masked = unmasked(), masked_once()
    raster, picture = masked.attachments.files
    if piece == "table":
        tampered = replace(masked, table=open_release.table)
    else:
        if piece == "thumbnail":
            files = (raster, open_release.attachments.files[1])
        elif piece == "statistics":
            files = (replace(raster, properties=open_release.attachments.files[0].properties), picture)
        else:
            pixels = read_cog(raster.data, "masked")
            other = write_cog(pixels, DATASET.raster.bands[:1], -5.0)  # type: ignore[union-attr]
            files = (replace(raster, data=other), picture)
        tampered = replace(masked, attachments=Attachments(files))
    wanted = {"table": "data.parquet", "statistics": "item: raster", "overviews": "raster.tif"}.get(
        piece, f"{piece}.png"
    )
    assert f"raster-follows, {wanted}" in breaches(tampered)


def test_a_raster_in_a_projection_is_not_masked_but_refused() -> None:
    with pytest.raises(PolicyRefused, match="in longitudes and latitudes only"):
        mask_pixels(unmasked("EPSG:26914").attachments, DATASET, rules())


def test_files_without_a_rule_are_refused() -> None:
    unknown = Attachments(unmasked().attachments.files[1:])
    with pytest.raises(PolicyRefused, match="has no rule for files beside the table; nothing is published"):
        mask_pixels(unknown, DATASET, rules())

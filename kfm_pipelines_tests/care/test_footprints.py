"""Footprints come from a restricted folder, and nothing is published without them."""

from dataclasses import replace
from pathlib import Path

import pytest
import shapely

from kfm_pipelines.care.footprints import footprints_of
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines_tests.fixtures.care.raster_policy import FOOTPRINT, raster_policy, write_footprints

SECRET = b"a secret that is long enough for a test of it"


def services(folder: Path | None) -> Services:
    settings = load_settings({"KFM_POSTGRES_URL": "postgresql://nobody@nowhere/none"})
    return Services(replace(settings, footprints=folder))


def test_the_places_are_those_of_the_file(tmp_path: Path) -> None:
    found = footprints_of(services(write_footprints(tmp_path, FOOTPRINT)), raster_policy(), SECRET)
    assert found is not None
    assert found.shapes == (FOOTPRINT,)


def test_the_digest_needs_the_secret_and_changes_with_the_places(tmp_path: Path) -> None:
    folder = write_footprints(tmp_path, FOOTPRINT)
    first = footprints_of(services(folder), raster_policy(), SECRET)
    other = footprints_of(services(folder), raster_policy(), SECRET[::-1])
    write_footprints(tmp_path, FOOTPRINT, shapely.Point(-97, 38))
    more = footprints_of(services(folder), raster_policy(), SECRET)
    assert first
    assert other
    assert more
    assert len({first.digest, other.digest, more.digest}) == 3
    assert "38.42" not in repr(first)


def test_without_a_folder_nothing_is_published() -> None:
    with pytest.raises(PolicyRefused, match="set KFM_FOOTPRINTS to the folder they are in"):
        footprints_of(services(None), raster_policy(), SECRET)


def test_a_missing_file_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(PolicyRefused, match="the footprints hidden cannot be read; nothing is published"):
        footprints_of(services(tmp_path), raster_policy(), SECRET)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"features": []}',
        '{"features": [{"geometry": null}]}',
        '{"features": [{"geometry": {"type": "Point", "coordinates": [500000, 4200000]}}]}',
        '{"features": [{"geometry": {"type": "Polygon", "coordinates": []}}]}',
    ],
)
def test_a_file_that_is_no_geojson_in_degrees_publishes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "hidden.geojson").write_text(text)
    with pytest.raises(PolicyRefused, match="the footprints hidden are not GeoJSON features in degrees") as refused:
        footprints_of(services(tmp_path), raster_policy(), SECRET)
    assert refused.value.__cause__ is None
    assert "500000" not in str(refused.value)

"""The shapes that `key.aoi` of a dataset names."""

import json
from pathlib import Path
from typing import Any

import pytest

from kfm_pipelines.declarations.areas import area_path, load_area
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.events.notices import declared

RESOURCES = shipped_path("resources")
SHIPPED = sorted(path.stem for path in (RESOURCES / "aois").glob("*.geojson"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_area_is_marked_as_no_boundary(name: str) -> None:
    area = load_area(RESOURCES, name)
    west, south, east, north = area.shape.bounds
    assert -180 <= west < east <= 180
    assert -90 <= south < north <= 90
    assert "no bound" in json.loads(area_path(RESOURCES, name).read_bytes())["properties"]["note"]


@pytest.mark.parametrize("name", declared())
def test_every_shipped_dataset_names_an_area(name: str) -> None:
    assert load_area(RESOURCES, declared()[name].key.aoi).name == declared()[name].key.aoi


def test_the_flint_hills_lie_in_kansas() -> None:
    hills, kansas = (load_area(RESOURCES, name).shape for name in ("flint_hills", "kansas_statewide"))
    assert kansas.covers(hills)
    assert hills.area < kansas.area / 5


def test_an_unknown_area_is_refused_with_those_there_are() -> None:
    with pytest.raises(DeclarationInvalid, match=r"there is no area 'atlantis'.*there are: flint_hills, kansas_state"):
        load_area(RESOURCES, "atlantis")


@pytest.mark.parametrize("document", [
    {}, {"geometry": None}, {"geometry": {"type": "Point", "coordinates": [0, 0]}},
    {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}},
    {"geometry": {"type": "Polygon", "coordinates": []}},
])  # fmt: skip
def test_an_area_must_be_a_valid_polygon(document: dict[str, Any], tmp_path: Path) -> None:
    path = area_path(tmp_path, "here")
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    with pytest.raises(DeclarationInvalid, match=r"here\.geojson: must be a GeoJSON feature with a"):
        load_area(tmp_path, "here")

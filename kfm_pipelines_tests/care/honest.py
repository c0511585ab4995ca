"""Honest releases that between them use every method: a register of points, displaced points, and shapes."""

from typing import Any

import h3
import shapely
from pyproj import Proj

from kfm_pipelines.care.policies import Policy, load_policy
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Sovereignty
from kfm_pipelines.settings import shipped
from kfm_pipelines_tests.care.releases import (
    GEOD,
    PROVENANCE,
    K,
    Record,
    Release,
    cell_place,
    centre,
    near,
    policy_of,
    register,
)

ZONE_14 = Proj(proj="utm", zone=14, ellps="WGS84")
NATIONS = Sovereignty(nations="Nations of the plains", notice="These records belong to the nations they are about.")

COARSE = h3.latlng_to_cell(38.5, -98.5, 3)
OTHER = h3.latlng_to_cell(37.5, -96.0, 3)
LONELY = (h3.latlng_to_cell(39.6, -101.0, 3), h3.latlng_to_cell(39.4, -95.4, 3))
FINE = [cell for cell in h3.cell_to_children(COARSE, 4) if h3.latlng_to_cell(*centre(cell), 3) == COARSE][:3]
BLOCKS = (h3.latlng_to_cell(38.0, -99.0, 5), h3.latlng_to_cell(39.0, -97.0, 5))
SCATTERED = ((37.2, -101.5), (37.3, -100.1), (39.7, -99.9), (39.8, -98.1), (37.4, -95.1))


def register_release(**policy: Any) -> Release:
    """Four classes: shown, in cells, counted at two resolutions by period, and without a place."""
    rules = {
        "open": {"point": {"method": "none"}},
        "generalised": {"point": {"method": "generalise", "resolution": 5}},
        "restricted": {"point": {"method": "group", "resolutions": [4, 3], "by": ["period"]}},
        "withheld": {"point": {"method": "suppress"}},
    }
    release = Release(policy_of(rules, **policy), register(sovereignty=NATIONS))
    release.documents[PROVENANCE] = {"@type": "care:Masking", "used": ["register-01"], "records": 6}
    _shown(release)
    _in_cells(release)
    _counted(release)
    for row in _rows(release, "withheld", *near(38.9, -96.9, 6, [5])):
        release.publish([row])
    return release


def displaced_release() -> Release:
    """24 features, one of them twice, each moved its own way."""
    rule = {"method": "displace", "min_m": 1000.0, "max_m": 5000.0, "reason": "A test"}
    policy = policy_of({"generalised": {"point": rule}}, **_single("generalised"))
    release = Release(policy, register())
    places = near(38.2, -98.2, 24, [3])
    for feature, place in enumerate([*places, {**places[0], "longitude": -97.4451239}]):
        row = release.add({**place, "site_id": f"site-{feature % 24:04d}-of", "sensitivity": "generalised"})
        move(release, row, (feature % 24) * 47.3 + 11.1, 1200.0 + (feature % 24) * 150.0)
    return release


def scattered_release(number: int, kept: str = "float64") -> Release:
    """Features all over the extent, none of which shows its place; `depth_m` is kept, and of the type asked for."""
    dataset = register()
    columns = [
        column.model_copy(update={"type": kept}) if column.name == "depth_m" else column
        for column in dataset.table.columns
    ]
    table = dataset.table.model_copy(update={"columns": columns})
    policy = policy_of({"withheld": {"point": {"method": "suppress"}}}, **_single("withheld"))
    release = Release(policy, register(table=table))
    for step in range(number):
        place = {"longitude": -101.8 + step * 0.6180339 % 1 * 7.0, "latitude": 37.0 + step * 0.7548777 % 1 * 3.0}
        easting, northing = ZONE_14(place["longitude"], place["latitude"])
        release.add({**place, "easting": easting + 0.123, "northing": northing + 0.123, "sensitivity": "withheld"})
    return release


def move(release: Release, row: int, bearing: float, distance: float) -> Record:
    at = release.rows[row]
    longitude, latitude, _ = GEOD.fwd(at["longitude"], at["latitude"], bearing, distance)
    return release.publish([row], longitude=float(longitude), latitude=float(latitude), uncertainty_m=5000.0)


def shapes_release() -> Release:
    """Polygons in one cell each, lines without a place, points in cells; told as geometries only."""
    rules = {
        "point": {"method": "generalise", "resolution": 5},
        "polygon": {"method": "generalise", "resolution": 5},
        "line": {"method": "suppress"},
    }
    release = Release(policy_of({"generalised": rules}, **_single("generalised")), shapes())
    latitude, longitude = centre(BLOCKS[0])
    for step in range(K):
        corner = (longitude + 0.0011937 * step, latitude + 0.0021731)
        add_shape(release, shapely.box(*corner, corner[0] + 0.0101913, corner[1] + 0.0131719), BLOCKS[0])
        add_shape(release, shapely.LineString([corner, (corner[0] + 0.1192837, corner[1])]), None)
        add_shape(release, shapely.Point(corner), BLOCKS[0])
    return release


def add_shape(release: Release, shape: Any, cell: str | None) -> Record:
    row = release.add({"geometry": shapely.to_wkb(shape)})
    return release.publish([row], **(cell_place(cell, shape=True) if cell else {}))


def told_twice_release() -> Release:
    """The displaced points again, each as degrees and as a geometry."""
    release = displaced_release()
    table = release.dataset.table
    outline = table.columns[0].model_copy(update={"name": "geometry", "type": "geometry"})
    both = {"columns": [*table.columns, outline], "geometry_column": "geometry"}
    release.dataset = register(table=table.model_copy(update=both))
    for values in (*release.rows, *(record.values for record in release.records)):
        values["geometry"] = shapely.to_wkb(shapely.Point(values["longitude"], values["latitude"]))
    return release


def shapes() -> Dataset:
    dataset = register()
    columns = [column for column in dataset.table.columns if column.holds is None and not column.name.endswith("itude")]
    outline = dataset.table.columns[0].model_copy(update={"name": "geometry", "type": "geometry"})
    places = {"longitude_column": None, "latitude_column": None, "geometry_column": "geometry"}
    return register(table=dataset.table.model_copy(update={"columns": [*columns, outline], **places}))


def open_release() -> Release:
    policy: Policy = load_policy(shipped("resources"), "not-sensitive")
    return Release(policy, register())


def group(release: Release, cell: str | None, rows: list[int], period: str | None) -> Record:
    place = cell_place(cell) if cell else {}
    return release.publish(rows, **place, records=len(rows) // K * K, period=period)


def _single(sensitivity: str) -> dict[str, Any]:
    columns = {
        "keep": ["period", "condition", "depth_m", "sensitivity"],
        "withhold": ["site_id", "site_name", "site_type", "land_owner", "surveyed_on"],
    }
    return {"class_column": None, "sensitivity": sensitivity, "columns": columns}


def _shown(release: Release) -> None:
    for row in _rows(release, "open", *near(38.71, -97.62, 3, [5])):
        at = release.rows[row]
        release.publish([row], longitude=at["longitude"], latitude=at["latitude"], uncertainty_m=0.0)


def _in_cells(release: Release) -> None:
    """Two cells with ten features each, and five features that are alone in theirs."""
    for block in BLOCKS:
        for row in _rows(release, "generalised", *near(*centre(block), 10, [5])):
            release.publish([row], **cell_place(block))
    alone = [place for latitude, longitude in SCATTERED for place in near(latitude, longitude, 1, [5])]
    for row in _rows(release, "generalised", *alone):
        release.publish([row])


def _counted(release: Release) -> None:
    """12 features in a coarse cell, six each in two fine ones of it; seven in another; three each in two more."""
    fine = [_rows(release, "restricted", *near(*centre(cell), 6, [3, 4])) for cell in FINE[:2]]
    other = _rows(release, "restricted", *near(*centre(OTHER), 7, [3]))
    lonely = [row for cell in LONELY for row in _rows(release, "restricted", *near(*centre(cell), 3, [3]))]
    group(release, COARSE, [*fine[0], *fine[1]], "Woodland")
    group(release, OTHER, other, "Woodland")
    group(release, FINE[0], fine[0], "Woodland")
    group(release, FINE[1], fine[1], "Woodland")
    group(release, None, lonely, None)


def _rows(release: Release, sensitivity: str, *places: dict[str, Any]) -> list[int]:
    return [release.add({**place, "sensitivity": sensitivity}) for place in places]

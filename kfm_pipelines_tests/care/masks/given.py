"""Sites to mask: an openly invented register, with the shipped declaration or one whose places are geometries."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely
import yaml

from kfm_pipelines.care.masks import Masked, mask_table
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.datasets import Dataset, load_dataset
from kfm_pipelines.settings import shipped
from kfm_pipelines_tests.declared import without_geometry

SITES = without_geometry(load_dataset(shipped("resources") / "datasets" / "heritage-sites.yaml"))
SHAPES = Dataset.model_validate(
    SITES.model_dump(exclude={"table", "quality"})
    | {
        "table": SITES.table.model_dump(exclude={"columns"})
        | {
            "geometry_column": "outline",
            "longitude_column": None,
            "latitude_column": None,
            "columns": [
                *(
                    column.model_dump()
                    for column in SITES.table.columns
                    if column.name not in ("longitude", "latitude")
                ),
                {"name": "outline", "type": "geometry", "nullable": True, "description": "Where it is"},
            ],
        }
    }
)
SECRET = b"a secret for nothing but tests!!"
WORDING = "Withheld to protect the site; ask the heritage review board"
_DOCUMENT = yaml.safe_load((shipped("resources") / "policies" / "heritage-sites.yaml").read_text())


def policy(rules: dict[str, dict[str, Any]], **changes: Any) -> Policy:
    """The shipped policy with these rules for its classes."""
    return Policy.model_validate(_DOCUMENT | {"classes": rules} | changes)


def generalise(resolution: int = 5) -> dict[str, Any]:
    return {"point": {"method": "generalise", "resolution": resolution}}


def group(*resolutions: int, by: Sequence[str] = ()) -> dict[str, Any]:
    return {"point": {"method": "group", "resolutions": list(resolutions), "by": list(by)}}


def displace(min_m: float, max_m: float) -> dict[str, Any]:
    return {"point": {"method": "displace", "min_m": min_m, "max_m": max_m, "reason": "to test it"}}


SUPPRESS = {"point": {"method": "suppress"}}
OMIT = {"point": {"method": "omit"}}
LEAVE = {"point": {"method": "none"}}


def sites(
    longitudes: Sequence[float] | npt.NDArray[Any],
    latitudes: Sequence[float] | npt.NDArray[Any],
    sensitivity: str | Sequence[str | None] = "generalised",
    **columns: Sequence[Any],
) -> pa.Table:
    """One site for each coordinate; any column can be given."""
    count = len(longitudes)
    values: dict[str, Any] = {
        "site_id": [f"INVENTED-{number:06d}" for number in range(count)],
        "site_name": [f"Canary {number}" for number in range(count)],
        "sensitivity": [sensitivity] * count if isinstance(sensitivity, str) else sensitivity,
        "latitude": latitudes,
        "longitude": longitudes,
        "easting": [123456.789] * count,
        "northing": [4234567.891] * count,
        "directions": ["past the invented oak"] * count,
        "site_type": ["mound"] * count,
        "land_owner": ["nobody"] * count,
        "period": ["archaic"] * count,
        "condition": ["good"] * count,
        "surveyed_on": [date(2020, 1, 1)] * count,
    }
    return pa.table({**values, **columns}, schema=_schema(SITES))


def shapes(geometries: Sequence[shapely.Geometry | bytes | None], sensitivity: str = "generalised") -> pa.Table:
    plain = sites([-98.0] * len(geometries), [38.0] * len(geometries), sensitivity).drop(["longitude", "latitude"])
    wkb = [one.wkb if isinstance(one, shapely.Geometry) else one for one in geometries]
    return plain.append_column("outline", pa.array(wkb, pa.binary()))


def _schema(dataset: Dataset) -> pa.Schema:
    types = {"string": pa.string(), "float64": pa.float64(), "date": pa.date32()}
    return pa.schema([(column.name, types[column.type]) for column in dataset.table.columns])


def scattered(count: int, seed: int = 1) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Longitudes and latitudes all over Kansas."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-102.0, -94.6, count), rng.uniform(37.0, 40.0, count)


def around(places: Sequence[tuple[float, float]], counts: Sequence[int]) -> tuple[list[float], list[float]]:
    """So many coordinates close to each of these places, all different."""
    found = [
        (place[0] + number * 1e-6, place[1])
        for place, many in zip(places, counts, strict=True)
        for number in range(many)
    ]
    return [one[0] for one in found], [one[1] for one in found]


def beside(shape: shapely.Geometry, count: int) -> list[shapely.Geometry]:
    """So many of this shape, each a centimetre from the one before."""
    return [shapely.transform(shape, lambda xy, step=number: xy + step * 1e-7) for number in range(count)]


def mask(table: pa.Table, rules: dict[str, dict[str, Any]], *, secret: bytes = SECRET, **changes: Any) -> Masked:
    dataset = SHAPES if "outline" in table.column_names else SITES
    return mask_table(table, dataset, policy(rules, **changes), secret)

"""Assembles a declaration and its policy from what an object shows, as YAML with comments."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from kfm_pipelines.declarations.areas import load_area
from kfm_pipelines.declarations.dataset import pipeline_of
from kfm_pipelines.declarations.identity import UNDECIDED_LICENCE, BBox
from kfm_pipelines.events import window_of
from kfm_pipelines.operations.datasets.new.inspection import FoundColumn, FoundTable, ObjectInspection
from kfm_pipelines.operations.datasets.new.paths import ObjectPlace, guess_place
from kfm_pipelines.operations.datasets.schema import SCHEMA_FILE

LEAST_BYTES, MOST_BYTES = 64 * 1024**2, 2 * 1024**3
MARGIN = 0.25  # of the range of values, on either side
BAND_MARGIN = 1.0  # likewise, of bands, whose bounds refuse an object
SPARSE = 0.5  # a raster with more pixels without a value may have none at all in an area, such as rain on a dry day
DEFAULT_AUTHORITY, DEFAULT_BUCKET, DEFAULT_AREA = "kfm-data-stewards", "kfm-ingest", "kansas_statewide"


@dataclass(frozen=True, slots=True)
class Draft:
    """Texts of the two files, and what to look at before they are used."""

    declaration: str
    policy: str
    unsure: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampleObject:
    """The object that was looked at."""

    name: str  # of a file, or the key of an object
    size: int
    bucket: str | None = None


def draft_declaration(
    dataset: str, origin: SampleObject, found: ObjectInspection, resources: Path, today: date
) -> Draft:
    """Pure but for the names of areas and authorities. `dataset` is its name, such as usgs/streamflow."""
    times = found.table.times if found.table else None
    place = guess_place(origin.name, f"{dataset}/", times)
    table, doubt = _in_window(found.table, place)
    area, outside = _choose_area(resources, found)
    if found.extent is not None and not outside:
        found = replace(found, extent=load_area(resources, area).shape.bounds)
    sections = _sections(dataset, origin, found, table, place, area)
    unsure = [*found.unsure, *(table.unsure if table else ()), *doubt, *outside]
    if not place.is_dated:
        unsure.append(
            f"the name of the object has no time in it; objects must be uploaded to match {place.object_pattern}"
        )
    authority = _first(resources / "authorities", "yaml", DEFAULT_AUTHORITY)
    return Draft(_write(dataset, origin, sections, unsure), _write_policy(dataset, authority, today), tuple(unsure))


def _in_window(table: FoundTable | None, place: ObjectPlace) -> tuple[FoundTable | None, list[str]]:
    """Leaves out a time column whose times are not in the window that the name of the object gives."""
    if table is None or table.times is None or place.start is None:
        return table, []
    window = window_of(place.start, place.window)
    if window.start <= table.times[0] and table.times[1] < window.end:
        return table, []
    doubt = f"{table.time_column} has times outside the {place.window} in the object's name, so it is no time_column"
    return replace(table, time_column=None), [doubt]


def _choose_area(resources: Path, found: ObjectInspection) -> tuple[str, list[str]]:
    """Returns the smallest area that contains the places, or the usual one, to which a raster is clipped; else the
    usual one with a doubt."""
    from shapely.geometry import box

    usual = _first(resources / "aois", "geojson", DEFAULT_AREA)
    if found.extent is None:
        return usual, []
    places = box(*found.extent)
    areas = {path.stem: load_area(resources, path.stem).shape for path in (resources / "aois").glob("*.geojson")}
    if found.processor == "raster" and usual in areas and places.covers(areas[usual]):
        return usual, []
    containing = [name for name, shape in areas.items() if shape.covers(places)]
    if containing:
        area = min(containing, key=lambda name: areas[name].area)
        doubt = f"the area {area} is a guess, because not all places lie in {usual}; it is part of every key"
        return area, [doubt] if usual in areas and not areas[usual].covers(areas[area]) else []
    return usual, [f"not all places lie in the area {usual}; choose another in resources/aois/, or add one"]


def _first(folder: Path, ending: str, preferred: str) -> str:
    known = sorted(path.stem for path in folder.glob(f"*.{ending}"))
    return preferred if preferred in known or not known else known[0]


def _sections(
    dataset: str, origin: SampleObject, found: ObjectInspection, table: FoundTable | None, place: ObjectPlace, area: str
) -> dict[str, Any]:
    title = dataset.partition("/")[2].replace("-", " ").replace("_", " ").capitalize()
    sections: dict[str, Any] = {
        "dataset": dataset,
        "title": title,
        "description": f"{title}. Say here what it is, who makes it, and what one row or pixel means.",
        "owners": ["team:data"],
        "tags": {"domain": dataset.partition("/")[0]},
        "licence": {"id": UNDECIDED_LICENCE, "url": "https://example.org/licence"},
        "providers": [{"name": "Who makes it", "roles": ["producer"]}],
        "key": {
            "source": pipeline_of(dataset),
            "aoi": area,
            "h3_res": "none",
            "window": place.window,
            "transform_version": "v1-0-0",
        },
        "input": {
            "bucket": origin.bucket or DEFAULT_BUCKET,
            "prefix": place.prefix,
            "object_pattern": place.object_pattern,
            "format": found.format,
            **found.options,
            "max_bytes": max(LEAST_BYTES, min(MOST_BYTES, 2 ** math.ceil(math.log2(max(origin.size, 1) * 4)))),
        },
        "processor": found.processor,
    }
    if found.layer:
        sections["vector"] = {"layer": found.layer}
    if found.bands:
        sections["raster"] = _raster_section(found)
    sections["policy"] = pipeline_of(dataset)
    if found.extent is not None:
        sections["extent"] = _widen(found.extent)
    if table is not None:
        sections["table"] = _table_section(table)
        sections["quality"] = _quality_section(table)
    return sections


def _raster_section(found: ObjectInspection) -> dict[str, Any]:
    bands = []
    for band in found.bands:
        low, high = _with_margin(band.bounds, share=BAND_MARGIN) if band.bounds else (None, None)
        limits: dict[str, Any] = {} if low is None else {"min": low, "max": high}
        if band.step is not None:
            limits["step"] = band.step
        if band.sentinels:
            limits["sentinels"] = list(band.sentinels)
        named = {"name": band.name, "source": band.source, "unit": band.unit, "description": band.description}
        bands.append({**named, **limits})
    sparse = max(band.missing_share for band in found.bands) > SPARSE
    grid = {"grid": dict(found.grid)} if found.grid else {}
    return {"bands": bands, **grid, **({"nodata_share": 1.0} if sparse else {})}


def _table_section(table: FoundTable) -> dict[str, Any]:
    roles = {
        role: getattr(table, role)
        for role in ("time_column", "longitude_column", "latitude_column", "geometry_column")
        if getattr(table, role)
    }
    return {"primary_key": list(table.primary_key), **roles, "columns": [_column(one) for one in table.columns]}


def _column(column: FoundColumn) -> dict[str, Any]:
    written: dict[str, Any] = {"name": column.name, "type": column.type, "nullable": column.nullable}
    for name in ("source", "unit", "holds"):
        if getattr(column, name) is not None:
            written[name] = getattr(column, name)
    if column.derived:
        written["derived"] = "point"
    return {**written, "description": column.name.replace("_", " ").capitalize()}


def _quality_section(table: FoundTable) -> dict[str, Any]:
    """Bounds are warnings: one object does not show what is possible."""
    ranges = [
        {"column": one.name, "min": low, "max": high, "severity": "warn"}
        for one in table.columns
        if one.bounds is not None and one.name not in table.primary_key
        for low, high in [_with_margin(one.bounds)]
    ]
    nulls = [
        {"column": one.name, "warn_above": round(min(1.0, one.null_share * 1.5 + 0.05), 2)}
        for one in table.columns
        if one.null_share > 0
    ]
    return {"ranges": ranges, "nulls": nulls, "rows": {"previous": {"warn_percent": 50.0}}}


def _with_margin(bounds: tuple[float, float], share: float = MARGIN) -> tuple[float, float]:
    """Rounds outward to two digits, so that no value of the data is written down; what is never negative stays so."""
    low, high = bounds
    margin = max((high - low) * share, abs(high) * 0.01, 1e-9)
    least = 0.0 if low >= 0 and low - margin < 0 else _round(low - margin, math.floor)
    return least, _round(high + margin, math.ceil)


def _round(value: float, to: Any) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{to(value / step) * step:.6g}")


def _widen(box: BBox) -> dict[str, float]:
    """To half degrees, with some room for what lies at the edge."""
    west, south = (math.floor(2 * value - 0.2) / 2 for value in box[:2])
    east, north = (math.ceil(2 * value + 0.2) / 2 for value in box[2:])
    limits = {"west": max(west, -180.0), "south": max(south, -90.0), "east": min(east, 180.0)}
    return {**limits, "north": min(north, 90.0)}


_COMMENTS: Mapping[str, str] = {
    "dataset": "What it is.",
    "licence": f"{UNDECIDED_LICENCE} is accepted, with a warning, until you write the right one (an SPDX id).",
    "key": "{source}:{aoi}:{h3_res}:{window}:{transform_version} is one unit of work. aoi: a file in resources/aois/.",
    "input": "Objects under this prefix whose whole name matches the pattern; its groups name the window.",
    "policy": "Undecided: nothing is published until somebody with authority has decided it.",
    "extent": "The box that contains all places of all objects, in degrees.",
    "table": "primary_key is the smallest combination that told the rows apart. Write units and descriptions.",
    "quality": "From this one object, with room. Only `severity: error` stops a publication.",
    "raster": "Correct units; add `sentinels` for values that mean no measurement.",
}
_FLOW = frozenset({"tags", "extent", "grid"})


def _write(dataset: str, origin: SampleObject, sections: Mapping[str, Any], unsure: list[str]) -> str:
    lines = [f"# yaml-language-server: $schema=../contracts/{SCHEMA_FILE}"]
    lines.append(f"# {dataset}, drafted from {Path(origin.name).name}. Edit it, then: kfm datasets check")
    lines += [f"# Look at this: {one}" for one in unsure]
    for name, section in sections.items():
        if name in _COMMENTS:
            lines += ["", f"# {_COMMENTS[name]}"]
        lines += _write_section(name, section)
    return "\n".join(lines) + "\n"


def _write_section(name: str, section: Any) -> Iterator[str]:
    if not isinstance(section, dict) or name in _FLOW:
        yield f"{name}: {_flow(section)}"
        return
    yield f"{name}:"
    for field, value in section.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"  {field}:"
            yield from (f"    - {_flow(one)}" for one in value)
        else:
            yield f"  {field}: {_flow(value)}"


def _flow(value: Any) -> str:
    """Writes a value on one line."""
    if isinstance(value, str) and value not in ("", "none") and "\n" not in value:
        return yaml.safe_dump(value, width=math.inf, allow_unicode=True).removesuffix("\n...\n").strip()
    if isinstance(value, dict | list):
        return yaml.safe_dump(
            value, default_flow_style=True, width=math.inf, sort_keys=False, allow_unicode=True
        ).strip()
    return "none" if value == "none" else json.dumps(value)


def _write_policy(dataset: str, authority: str, today: date) -> str:
    return f"""# Masking policy of {dataset}: closed until somebody with authority decides.
# To decide: `sensitivity: open` if no place, person or community can be harmed; otherwise `classes` (docs/care.md).
policy: {pipeline_of(dataset)}
version: 1
sensitivity: undecided
reason: Nobody has decided yet whether places in this dataset have to be protected.
# Who decides: a file in resources/authorities/. This is a guess: about land or people of a nation, the nation decides.
authority: {authority}
reviewed_on: {today.isoformat()}
review_every_days: 365
"""

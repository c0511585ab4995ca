"""A derived dataset names the datasets it is made of; what could not be made of them is refused when it is loaded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.declarations.dataset import Dataset, load_dataset, load_datasets
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.declarations import resources_in
from kfm_pipelines_tests.fixtures.real_files import DATA, TRIBAL_AREAS, need_tribal_areas, needs_data

ATLAS = "atlas-drought-streamflow.yaml"
CELLS = {"longitude": "longitude", "latitude": "latitude"}
Change = Callable[[dict[str, Any]], object]


def atlas(folder: Path, change: Change) -> Path:
    """Returns a copy of what is shipped in which the derived dataset is declared otherwise."""
    resources = resources_in(folder)
    path = resources / "datasets" / ATLAS
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))
    return resources


AREAS = {
    "Iowa (KS-NE) Reservation": ("00479831", "86"),
    "Iowa (KS-NE) Off-Reservation Trust Land": ("00479831", "OT"),
    "Sac and Fox Nation Reservation": ("00479832", "86"),
    "Sac and Fox Nation Off-Reservation Trust Land": ("00479832", "OT"),
    "Kickapoo (KS) Reservation": ("00479833", "86"),
    "Prairie Band of Potawatomi Nation Reservation": ("01934332", "86"),
}


def made_of(*names: str) -> Change:
    return lambda document: document["input"].update(upstream=[{"dataset": name, "cells": CELLS} for name in names])


def test_it_has_upstreams_and_no_bucket() -> None:
    dataset = load_datasets(shipped_path("resources"))["atlas/drought-streamflow"]
    assert dataset.input.upstream_names == ["usgs/streamflow", "drought/tribal-areas"]
    assert dataset.input.location == "usgs/streamflow, drought/tribal-areas"
    assert dataset.input.bucket == ""


@needs_data
def test_the_cells_of_an_area_are_those_its_outline_touches() -> None:
    dataset = load_dataset(shipped_path("resources") / "datasets" / ATLAS)
    declared = {tuple(area.values): sorted(area.cells) for area in dataset.input.upstream[1].cells.areas}
    outlines = json.loads((DATA / "kansas_aiannh.geojson").read_text())["features"]
    shapes = {one["properties"]["NAMELSAD"]: h3.geo_to_h3shape(one["geometry"]) for one in outlines}
    for name, area in AREAS.items():
        assert declared[area] == sorted(set(h3.h3shape_to_cells_experimental(shapes[name], 5, "overlap"))), name


@need_tribal_areas
def test_the_areas_have_the_numbers_of_the_publisher() -> None:
    rows = pa.concat_tables(pq.read_table(path, columns=["GNIS", "NameLSAD", "LSAD"]) for path in TRIBAL_AREAS)
    known = {(row["NameLSAD"], (row["GNIS"], row["LSAD"])) for row in rows.to_pylist()}
    assert set(AREAS.items()) <= known


def test_a_stored_declaration_can_be_read_again() -> None:
    dataset = load_dataset(shipped_path("resources") / "datasets" / ATLAS)
    assert Dataset.model_validate(dataset.model_dump(mode="json")) == dataset


def test_where_a_row_belongs_shapes_the_bytes(tmp_path: Path) -> None:
    before = load_dataset(shipped_path("resources") / "datasets" / ATLAS)
    moved = atlas(tmp_path, lambda document: document["input"]["upstream"][1]["cells"]["areas"].pop())
    assert load_dataset(moved / "datasets" / ATLAS).digest != before.digest


def _set(path: str, value: object) -> Change:
    *parents, last = path.split(".")

    def change(document: dict[str, Any]) -> None:
        for parent in parents:
            document = document[int(parent) if isinstance(document, list) else parent]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_set("input.bucket", "kfm-ingest"), "input: bucket is about objects; an input with upstream has none"),
        (_set("transform", "metric_discharge"), "transform: input.upstream needs a transform that joins"),
        (_set("processor", "vector"), "processor: vector reads its geometry"),
        (_set("key.fold_by", "tile"), "key.fold_by and watermark.partition name a part of an object's path"),
        (_set("key.h3_res", "none"), "key.h3_res must be a resolution"),
        (_set("key.h3_res", "6"), "cell 85260b03fffffff is not of resolution 6"),
        (made_of("usgs/streamflow", "usgs/streamflow"), "input.upstream has the same dataset twice"),
        (_set("input.upstream.0.cells", {"longitude": "longitude"}), "longitude goes together with latitude"),
        (_set("input.upstream.0.cells", {**CELLS, "cell": "h3"}), "needs longitude and latitude, or cell, or area"),
        (_set("input.upstream.1.cells.area", ["gnis"]), "each needs as many values as area has columns, 1"),
    ],
)
def test_a_derived_dataset_that_cannot_be_made_is_refused(tmp_path: Path, change: Change, reason: str) -> None:
    resources = atlas(tmp_path, change)
    with pytest.raises(DeclarationInvalid, match=rf"^{ATLAS}: .*{reason}"):
        load_datasets(resources)


def test_only_upstreams_can_be_joined(tmp_path: Path) -> None:
    path = resources_in(tmp_path) / "datasets" / "usgs-streamflow.yaml"
    path.write_text(path.read_text() + "\ntransform: drought_streamflow\n")
    with pytest.raises(DeclarationInvalid, match=r"transform: only input\.upstream can be joined: drought_streamflow"):
        load_dataset(path)


def test_a_dataset_of_objects_needs_a_bucket(tmp_path: Path) -> None:
    path = resources_in(tmp_path) / "datasets" / "usgs-streamflow.yaml"
    path.write_text(path.read_text().replace("bucket: kfm-ingest", 'bucket: ""'))
    with pytest.raises(DeclarationInvalid, match="bucket must name the bucket of the objects"):
        load_dataset(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (made_of("usgs/streamflo"), "'usgs/streamflo' is not declared; declared: atlas/drought-streamflow, drought/"),
        (made_of("atlas/drought-streamflow"), "is a circle: atlas/drought-streamflow is made of atlas/drought-stream"),
        (made_of("heritage/sites"), "a month of heritage/sites does not lie within one week, this dataset's window"),
    ],
)
def test_upstreams_must_be_declared_lead_nowhere_back_and_fit_the_window(
    tmp_path: Path, change: Change, reason: str
) -> None:
    resources = atlas(tmp_path, change)
    with pytest.raises(DeclarationInvalid, match=rf"^atlas/drought-streamflow: input\.upstream: {reason}"):
        load_datasets(resources)


def test_a_circle_over_two_datasets_is_refused(tmp_path: Path) -> None:
    resources = atlas(tmp_path, made_of("atlas/second"))
    second = yaml.safe_load((resources / "datasets" / ATLAS).read_text())
    made_of("atlas/drought-streamflow")(second)
    second["dataset"], second["key"]["source"] = "atlas/second", "atlas-second"
    (resources / "datasets" / "atlas-second.yaml").write_text(yaml.safe_dump(second))
    with pytest.raises(DeclarationInvalid, match="is made of atlas/second is made of atlas/drought-streamflow"):
        load_datasets(resources)

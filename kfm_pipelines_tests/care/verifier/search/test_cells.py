"""Cells contain what H3 assigns to them, mostly without asking H3."""

import random
from itertools import pairwise
from typing import Any

import h3
import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pytest

from kfm_pipelines.care.verifier.search.cells import read_cells
from kfm_pipelines.parquet.distinct_values import encode_column


def around(cell: str, chance: random.Random) -> list[tuple[float, float]]:
    """Returns places in the cell, on its edges, and a little outside."""
    latitude, longitude = h3.cell_to_latlng(cell)
    ways = [0.3, 0.9, 0.98, 0.9999, 1.0, 1.0001, 1.02, 1.3]
    corners = h3.cell_to_boundary(cell)
    edges = [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in pairwise(corners)]
    return [
        (latitude + (y - latitude) * way, longitude + (x - longitude) * way)
        for y, x in [*corners, *edges]
        for way in (*ways, chance.uniform(0, 1.2))
    ]


@pytest.mark.parametrize("resolution", range(16))
def test_cells_contain_the_places_that_h3_assigns_to_them(resolution: int) -> None:
    chance = random.Random(resolution)
    middles = [(chance.uniform(-85, 85), chance.uniform(-170, 170)) for _ in range(30)] + [(38.5, -98.5)]
    cells = {h3.latlng_to_cell(*middle, resolution) for middle in middles} | set(h3.get_pentagons(resolution))
    near = sorted({other for cell in cells for other in h3.grid_disk(cell, 1)})
    near = [cell for cell in near if abs(h3.cell_to_latlng(cell)[1]) < 120]  # away from the antimeridian
    names, places = [], []
    for cell in near:
        for place in around(cell, chance):
            names.append(cell)
            places.append(place)
    latitudes, longitudes = np.array(places).T
    read = read_cells(encode_column(pa.chunked_array([pa.array(names)])))
    held = read.contain(read.positions, longitudes, latitudes)
    expected = [h3.latlng_to_cell(*place, resolution) == cell for cell, place in zip(names, places, strict=True)]
    assert held.tolist() == expected
    assert 0.1 < held.mean() < 0.95


def test_few_places_need_h3(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = [], h3_int.latlng_to_cell

    def counting(*place: Any) -> int:
        asked.append(place)
        return int(ask(*place))

    monkeypatch.setattr(h3_int, "latlng_to_cell", counting)
    rng = np.random.default_rng(1)
    longitudes, latitudes = rng.uniform(-102, -94.6, 5000), rng.uniform(37, 40, 5000)
    names = [h3.latlng_to_cell(*place, 4) for place in zip(latitudes.tolist(), longitudes.tolist(), strict=True)]
    read = read_cells(encode_column(pa.chunked_array([pa.array(names)])))
    assert read.contain(read.positions, longitudes, latitudes).all()
    assert len(asked) < 250

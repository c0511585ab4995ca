"""Where the verifier takes a shortcut through a million rows, it comes to what the long way comes to."""

import random
import re
import struct
from itertools import pairwise
from typing import Any

import h3
import h3.api.basic_int as h3_int
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kfm_pipelines.care.verifier.protected import ProtectedPlaces
from kfm_pipelines.care.verifier.rules.columns import count_unsorted_rows
from kfm_pipelines.care.verifier.rules.file_bytes import count_coordinates
from kfm_pipelines.care.verifier.search.cells import read_cells
from kfm_pipelines.care.verifier.search.distinct import read_texts
from kfm_pipelines.care.verifier.search.phrases import Phrases

WORD = re.compile(r"[^\W_]+")
SEEDS = range(20)
each_seed = pytest.mark.parametrize("seed", SEEDS)


def around(cell: str, chance: random.Random) -> list[tuple[float, float]]:
    """Places in the cell, on its edges, and a little out of it."""
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
def test_a_place_is_in_the_cell_that_h3_says_it_is_in(resolution: int) -> None:
    chance = random.Random(resolution)
    middles = [(chance.uniform(-85, 85), chance.uniform(-170, 170)) for _ in range(30)] + [(38.5, -98.5)]
    cells = {h3.latlng_to_cell(*middle, resolution) for middle in middles} | set(h3.get_pentagons(resolution))
    near = sorted({other for cell in cells for other in h3.grid_disk(cell, 1)})
    near = [cell for cell in near if abs(h3.cell_to_latlng(cell)[1]) < 120]  # degrees go round at 180
    told, places = [], []
    for cell in near:
        for place in around(cell, chance):
            told.append(cell)
            places.append(place)
    latitudes, longitudes = np.array(places).T
    read = read_cells(read_texts(pa.chunked_array([pa.array(told)])))
    held = read.contain(read.positions, longitudes, latitudes)
    expected = [h3.latlng_to_cell(*place, resolution) == cell for cell, place in zip(told, places, strict=True)]
    assert held.tolist() == expected
    assert 0.1 < held.mean() < 0.95


def test_h3_is_asked_about_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = [], h3_int.latlng_to_cell

    def counting(*place: Any) -> int:
        asked.append(place)
        return int(ask(*place))

    monkeypatch.setattr(h3_int, "latlng_to_cell", counting)
    rng = np.random.default_rng(1)
    longitudes, latitudes = rng.uniform(-102, -94.6, 5000), rng.uniform(37, 40, 5000)
    told = [h3.latlng_to_cell(*place, 4) for place in zip(latitudes.tolist(), longitudes.tolist(), strict=True)]
    read = read_cells(read_texts(pa.chunked_array([pa.array(told)])))
    assert read.contain(read.positions, longitudes, latitudes).all()
    assert len(asked) < 250


PARTS = ["Old", "old", "MILL", "mill", "14RI301", "14ri301", "X1", "Ünder", "ünder", "straße", "STRASSE", "ﬁsh", "fish"]
BETWEEN = [" ", "-", "_", ", ", "  ", "…", " 'n' ", ""]


def some_text(chance: random.Random, most: int) -> str:
    signs = [chance.choice(PARTS) + chance.choice(BETWEEN) for _ in range(chance.randint(1, most))]
    return chance.choice(["", "", "(", " "]) + "".join(signs)


def phrase_of(value: str) -> str:
    words = WORD.findall(value.casefold())
    return " ".join(WORD.findall(value) if len(words) == 1 and words[0].isalpha() else words)


def is_said(phrase: str, text: str) -> bool:
    written = WORD.findall(text)
    folded = " ".join(word.casefold() for word in written)
    return phrase in written if phrase.isalpha() else f" {phrase} " in f" {folded} "


@each_seed
def test_the_phrases_that_are_found_are_those_that_are_there(seed: int) -> None:
    chance = random.Random(seed)
    values = [some_text(chance, 3) for _ in range(300)]
    texts = [some_text(chance, 5) for _ in range(100)] + [""]
    wanted = {phrase_of(value) for value in values if len(value.strip()) >= 4} - {""}
    expected = [{phrase for phrase in wanted if is_said(phrase, text)} for text in texts]
    assert Phrases(values).find_in_each(texts) == expected
    assert any(expected)
    public = set().union(*expected[:20])
    assert Phrases(values).without(texts[:20]).find_in_each(texts) == [found - public for found in expected]


@each_seed
def test_the_phrases_in_bytes_are_those_that_are_there(seed: int) -> None:
    chance = random.Random(seed)
    values = sorted({some_text(chance, 3) for _ in range(300)})
    blobs = ["\0".join(some_text(chance, 4) for _ in range(30)).encode().lower() for _ in range(2)]
    small = {value.lower().encode() for value in values if len(value.strip()) >= 4 and phrase_of(value)}
    expected = sum(len(value) >= 6 and value in blob for value in small for blob in blobs)
    assert Phrases(values).count_in_bytes(blobs, 6) == expected


def some_places(seed: int) -> "tuple[npt.NDArray[np.float64], ...]":
    rng = np.random.default_rng(seed)
    parts = (rng.uniform(-102, -94, 200), rng.uniform(37, 40, 200), np.append(rng.uniform(1e5, 5e6, 200), [0.0, 38.5]))
    return tuple(np.sort(part) for part in parts)


@each_seed
def test_the_coordinates_in_bytes_are_those_that_are_there(seed: int) -> None:
    chance, places = random.Random(seed), some_places(seed)
    every = np.concatenate(places).tolist()
    blob = chance.randbytes(chance.randint(0, 7))
    for _ in range(50):
        number = chance.choice([chance.choice(every), chance.uniform(-102, 40), 0.0, 38.5, float("nan")])
        blob += chance.randbytes(chance.randint(0, 9)) + struct.pack(chance.choice("<>") + "d", number)
    marked = [number for number in every if struct.pack("<d", number)[:4] != bytes(4)]
    expected = sum(blob.count(struct.pack(f"{order}d", number)) for number in marked for order in "<>")
    assert count_coordinates(blob, places) == expected > 0
    assert count_coordinates(b"", places) == 0


@each_seed
def test_the_numbers_that_tell_a_place_are_those_with_enough_digits(seed: int) -> None:
    places, rng = some_places(seed), np.random.default_rng(seed)
    every = np.concatenate(places)
    values = np.concatenate([rng.choice(every, 50), rng.uniform(-102, 40, 50), [np.nan, 0.0, 38.5]])
    telling = every[np.round(every, 5) != every]
    assert ProtectedPlaces(*places).count_matches(values) == int(np.isin(values, telling).sum()) > 0


def some_column(chance: random.Random, rows: int) -> pa.Array:
    kinds: dict[pa.DataType, list[Any]] = {
        pa.float64(): [None, float("nan"), -1.5, 0.0, -0.0, 2.5],
        pa.int64(): [None, 2**60, 2**60 + 1, -3],
        pa.string(): [None, "", "a", "B", "é"],
        pa.binary(): [None, b"", b"\x00", b"\xff"],
        pa.date32(): [None, 1, 2],
        pa.bool_(): [None, True, False],
    }
    kind, values = chance.choice(list(kinds.items()))
    return pa.array([chance.choice(values) for _ in range(rows)], kind, from_pandas=False)


@each_seed
def test_rows_are_in_order_when_sorting_leaves_them_where_they_are(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        rows, width = chance.randint(0, 6), chance.randint(1, 3)
        table = pa.table({str(place): some_column(chance, rows) for place in range(width)})
        order = pc.sort_indices(table, sort_keys=[(name, "ascending", "at_end") for name in table.column_names])
        stays = order.to_pylist() == list(range(rows))
        assert (count_unsorted_rows(table.columns) == 0) is stays
        assert count_unsorted_rows(table.take(order).columns) == 0


def test_texts_that_a_file_lists_twice_or_never_uses_are_not_counted() -> None:
    listed = pa.array(["a", "unused", "b", "a", "c"])
    column = pa.DictionaryArray.from_arrays(pa.array([3, 0, None, 2, 4], pa.int32()), listed)
    texts = read_texts(pa.chunked_array([column, column.slice(1, 3)]))
    assert sorted(texts.distinct.to_pylist()) == ["a", "b", "c"]
    told = [None if place < 0 else texts.distinct[place].as_py() for place in texts.codes.tolist()]
    assert told == ["a", "a", None, "b", "c", "a", None, "b"]
    assert texts.distinct_in(1, 4).to_pylist() == ["a", "b"]

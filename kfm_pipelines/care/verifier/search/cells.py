"""H3 cells for the verifier: validity, centre, outline, radius, and which cell holds a point."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import h3.api.basic_int as h3
import h3.api.basic_str as h3_text
import numpy as np
import numpy.typing as npt
import shapely
from pyproj import Geod

from kfm_pipelines.care.verifier.types import Degrees, Numbers
from kfm_pipelines.parquet.distinct_values import EncodedColumn

_BATCH_SIZE = 65_536  # places whose intermediate arrays fit the processor's cache
_SAFETY_FACTOR = 0.99
_FINEST_EXACT_RESOLUTION = 10  # cells of 130 m


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct cells of a column, and the position of each value's cell; -1 for an invalid one."""

    names: frozenset[str]  # including invalid ones
    codes: npt.NDArray[np.uint64]
    positions: Numbers

    @cached_property
    def resolutions(self) -> Numbers:
        return np.array([h3.get_resolution(int(code)) for code in self.codes], dtype=np.int64)

    @cached_property
    def centres(self) -> tuple[Degrees, Degrees]:
        """Longitudes and latitudes of the centres."""
        found = np.array([h3.cell_to_latlng(int(code)) for code in self.codes], dtype=np.float64).reshape(-1, 2)
        return found[:, 1], found[:, 0]

    @cached_property
    def outlines(self) -> npt.NDArray[Any]:
        rings = [[(x, y) for y, x in h3.cell_to_boundary(int(code))] for code in self.codes]
        return np.array([shapely.Polygon(ring) for ring in rings], dtype=object)

    @cached_property
    def radii(self) -> Degrees:
        """Metres from the centre to the farthest corner."""
        corners, of = shapely.get_coordinates(self.outlines, return_index=True)
        longitudes, latitudes = self.centres
        reach = geodesic_distances(longitudes[of], latitudes[of], corners[:, 0], corners[:, 1])
        farthest = np.zeros(len(self.codes))
        np.maximum.at(farthest, of, reach)
        return farthest

    def contain(self, positions: Numbers, longitudes: Degrees, latitudes: Degrees) -> npt.NDArray[np.bool_]:
        """Flags places that lie in the cell at their position. Only those near an edge need H3."""
        held = np.zeros(len(positions), np.bool_)
        for start in range(0, len(positions), _BATCH_SIZE):
            part = slice(start, start + _BATCH_SIZE)
            away = _unit_vectors(longitudes[part], latitudes[part]) - self._centre_vectors[positions[part]]
            held[part] = np.einsum("ij,ij->i", away, away) < self._inner_radius_squared[positions[part]]
        rest = np.flatnonzero(~held)
        held[rest] = self._inside_edges(positions[rest], longitudes[rest], latitudes[rest])
        rest = rest[~held[rest]]
        at = positions[rest]
        held[rest] = cells_at(longitudes[rest], latitudes[rest], self.resolutions[at]) == self.codes[at]
        return held

    def _inside_edges(self, positions: Numbers, longitudes: Degrees, latitudes: Degrees) -> npt.NDArray[np.bool_]:
        """Flags places on the centre's side of all edges and not too near to any."""
        normals, of, nearest = self._edges
        within = self._has_exact_edges[positions]
        vectors = _unit_vectors(longitudes, latitudes)
        starts = np.searchsorted(of, np.arange(len(self.codes)))
        for turn in range(int(np.bincount(of, minlength=1).max())):
            edge = np.minimum(starts + turn, len(of) - 1)
            edge = np.where(of[edge] == np.arange(len(self.codes)), edge, starts)[positions]
            within &= np.einsum("ij,ij->i", vectors, normals[edge]) > (1 - _SAFETY_FACTOR) * nearest[positions]
        return within

    @cached_property
    def _centre_vectors(self) -> Degrees:
        return _unit_vectors(*self.centres)

    @cached_property
    def _inner_radius_squared(self) -> Degrees:
        """The squared distance from the centre within which everything is in the cell.

        Edges are arcs of great circles, so no point of an edge is nearer to the centre than its circle. The safety
        factor is far more than this and H3 can differ by.
        """
        # A chord is longer than the sine of its angle.
        return np.where(self._has_exact_edges, (_SAFETY_FACTOR * self._edges[2]) ** 2, 0.0)

    @cached_property
    def _has_exact_edges(self) -> npt.NDArray[np.bool_]:
        """Flags cells whose edges are exact: in the finest pentagons H3 itself is a few centimetres off."""
        pentagons = np.array([h3.is_pentagon(int(code)) for code in self.codes], dtype=np.bool_)
        return ~pentagons & (self.resolutions <= _FINEST_EXACT_RESOLUTION)

    @cached_property
    def _edges(self) -> tuple[Degrees, Numbers, Degrees]:
        """Normals of the edges' great circles, facing the centre; the cell each belongs to; and the sine of the
        distance from each centre to its nearest edge."""
        corners, of = shapely.get_coordinates(self.outlines, return_index=True)
        vectors = _unit_vectors(corners[:, 0], corners[:, 1])
        same = of[1:] == of[:-1]
        normals, of = np.cross(vectors[:-1][same], vectors[1:][same]), of[1:][same]
        sines = np.einsum("ij,ij->i", normals, self._centre_vectors[of]) / np.linalg.norm(normals, axis=1)
        normals *= (np.sign(sines) / np.linalg.norm(normals, axis=1))[:, np.newaxis]
        nearest = np.full(len(self.codes), np.inf)
        np.minimum.at(nearest, of, np.abs(sines))
        return normals, of, nearest


def _unit_vectors(longitudes: Degrees, latitudes: Degrees) -> Degrees:
    east, north = np.radians(longitudes), np.radians(latitudes)
    level = np.cos(north)
    return np.column_stack([level * np.cos(east), level * np.sin(east), np.sin(north)])


def read_cells(texts: EncodedColumn) -> Cells:
    """Parses each distinct text once: a million values name a few thousand cells."""
    names = texts.distinct.to_pylist()
    known = [is_cell(name) for name in names]
    codes = [h3.str_to_int(name) for name, good in zip(names, known, strict=True) if good]
    places = np.append(np.where(known, np.cumsum(known) - 1, -1), -1).astype(np.int64)
    return Cells(frozenset(names), np.array(codes, dtype=np.uint64), places[texts.codes])


def cells_at(longitudes: Degrees, latitudes: Degrees, resolutions: Numbers) -> npt.NDArray[np.uint64]:
    """Returns the cell of each coordinate. A parent cell would not do, because it does not contain all its children."""
    triples = zip(latitudes.tolist(), longitudes.tolist(), resolutions.tolist(), strict=True)
    return np.array([h3.latlng_to_cell(*triple) for triple in triples], dtype=np.uint64)


def geodesic_distances(west: Degrees, south: Degrees, east: Degrees, north: Degrees) -> Degrees:
    """Returns distances in metres on the ellipsoid from each (west, south) to its (east, north)."""
    return np.asarray(Geod(ellps="WGS84").inv(west, south, east, north)[2], dtype=np.float64)


def is_cell(text: str) -> bool:
    return bool(h3_text.is_valid_cell(text)) and h3_text.int_to_str(h3_text.str_to_int(text)) == text

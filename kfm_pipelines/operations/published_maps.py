"""Small maps of what has just been published, read back as readers get it.

Drawing is dear and its result small, so what lies in the same places has the same picture: the gauges of a state are
drawn once for all hours of a run, and for the next runs of a process.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.review_page.outlines import load_outline
from kfm_pipelines.care.review_page.places import MapPlaces
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Extent
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.parquet import read_parquet
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs import of_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

WIDTH = 480  # pixels; some 20 kB, and a third more in the event log
DRAWN = 5  # different pictures a run, each a tenth of a second after the first
KEPT = 16  # pictures a process keeps for its next runs
LARGEST = 4 * 1024 * 1024  # bytes of a file that is read again only to be drawn


def published_maps(workshop: Workshop, dataset: Dataset, releases: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """PNG by key. None for a key whose rows have no place, that is too large or comes after too many others, or that
    cannot be drawn: a picture is no reason to stop."""
    pictures: dict[_Sight, bytes] = {}
    maps: dict[str, bytes] = {}
    for key, release in releases.items():
        if release["bbox"] is None or release["bytes"] > LARGEST:
            continue
        try:
            sight = _sight(_places(workshop, dataset, key, release["content_hash"]))
            if sight not in pictures and len(pictures) < DRAWN:
                pictures[sight] = _drawn(workshop, dataset, sight)
            if sight in pictures:
                maps[key] = pictures[sight]
        except Exception as error:  # noqa: BLE001 - what it is may quote the data
            log.warning("no map of %s", key, extra={"idempotency_key": key, **of_error(error)})
    return maps


def _places(workshop: Workshop, dataset: Dataset, key: str, content_hash: str) -> MapPlaces:
    from kfm_pipelines.care.review_page.view import places_after

    table = read_parquet(workshop.store.read(Layout(dataset.pipeline).content(content_hash)), key)
    name = workshop.policy(dataset).class_column
    return places_after(table, dataset, name if name in table.column_names else None)


@dataclass(frozen=True)
class _Sight:
    """Places, and what those that look the same on a map have in common."""

    places: MapPlaces = field(compare=False)
    common: tuple[object, ...]


def _sight(places: MapPlaces) -> _Sight:
    points = [
        (one.name, one.longitude.tobytes(), one.latitude.tobytes(), one.uncertainty_m.tobytes())
        for one in places.points
    ]
    return _Sight(places, (places.cells, tuple(points), places.without_place))


def _drawn(workshop: Workshop, dataset: Dataset, sight: _Sight) -> bytes:
    outline = load_outline(workshop.settings.resources, dataset.key.aoi)
    frame = dataset.extent or _around(outline, sight.places)
    return _picture(sight, frame, dataset.title, outline)


@lru_cache(KEPT)
def _picture(sight: _Sight, frame: Extent, title: str, outline: tuple[tuple[float, float], ...]) -> bytes:
    from kfm_pipelines.care.review_page.maps import draw_map

    return draw_map(sight.places, frame, title=title, outline=outline, width_px=WIDTH)


def _around(outline: Sequence[tuple[float, float]], places: MapPlaces) -> Extent:
    """The area of interest, or where nobody has drawn that, the places themselves."""
    if outline:
        longitudes, latitudes = zip(*outline, strict=True)
        return _frame(longitudes, latitudes)
    return _frame(_all(points.longitude for points in places.points), _all(points.latitude for points in places.points))


def _all(parts: "Iterable[NDArray[np.float64]]") -> list[float]:
    return [float(degree) for part in parts for degree in part]


def _frame(longitudes: Sequence[float], latitudes: Sequence[float]) -> Extent:
    """With a little room, for a single point too."""
    return Extent(
        west=max(min(longitudes) - 0.1, -180.0),
        south=max(min(latitudes) - 0.1, -90.0),
        east=min(max(longitudes) + 0.1, 180.0),
        north=min(max(latitudes) + 0.1, 90.0),
    )

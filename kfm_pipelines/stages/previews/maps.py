"""Small maps of what has just been published, read back as readers get it.

Drawing is dear and its result small, so what lies in the same places has the same picture: the gauges of a state are
drawn once for all hours of a run, and for the next runs of a process.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.review.page.places import MapPlaces, load_outline
from kfm_pipelines.declarations import Extent
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.configure import error_fields

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

WIDTH_PX = 480  # pixels; some 20 kB, and a third more in the event log
MAX_MAPS_PER_RUN = 5  # different pictures a run, each a tenth of a second after the first
MAX_CACHED_MAPS = 16  # pictures a process keeps for its next runs
MAX_FILE_BYTES = 4 * 1024 * 1024  # bytes of a file that is read again only to be drawn

_map_cache: dict[object, bytes] = {}  # by all that a picture shows; used last, comes last


def published_maps(services: Services, dataset: Dataset, releases: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """PNG by key. None for a key whose rows have no place, that is too large or comes after too many others, or that
    cannot be drawn: a picture is no reason to stop."""
    pictures: dict[bytes, bytes] = {}
    maps: dict[str, bytes] = {}
    for key, release in releases.items():
        if release["bbox"] is None or release["bytes"] > MAX_FILE_BYTES:
            continue
        try:
            places = _places(services, dataset, key, release["content_hash"])
            sight = _appearance_digest(places)
            if sight not in pictures and len(pictures) < MAX_MAPS_PER_RUN:
                pictures[sight] = _draw_cached(services, dataset, sight, places)
            if sight in pictures:
                maps[key] = pictures[sight]
        except Exception as error:  # noqa: BLE001 - what it is may quote the data
            log.warning("no map of %s", key, extra={"idempotency_key": key, **error_fields(error)})
    return maps


def _places(services: Services, dataset: Dataset, key: str, content_hash: str) -> MapPlaces:
    from kfm_pipelines.care.review.page.places import released_places

    table = read_parquet(services.store.read(Layout(dataset.pipeline).content(content_hash)), key)
    name = policy_of(services, dataset).class_column
    return released_places(table, dataset, name if name in table.column_names else None)


def _appearance_digest(places: MapPlaces) -> bytes:
    """What two maps that look the same have in common, in few bytes: pictures are kept longer than their places."""
    digest = hashlib.sha256(repr((places.cells, places.without_place)).encode())
    for one in places.points:
        digest.update(repr((one.name, len(one))).encode())
        for column in (one.longitude, one.latitude, one.uncertainty_m):
            digest.update(column.tobytes())
    return digest.digest()


def _draw_cached(services: Services, dataset: Dataset, appearance: bytes, places: MapPlaces) -> bytes:
    from kfm_pipelines.care.review.page.maps import draw_map

    outline = load_outline(services.settings.resources, dataset.key.aoi)
    frame = dataset.extent or _frame_around(outline, places)
    shown = (appearance, frame, dataset.title, outline)
    picture = _map_cache.pop(shown, None) or draw_map(
        places, frame, title=dataset.title, outline=outline, width_px=WIDTH_PX
    )
    _map_cache[shown] = picture
    if len(_map_cache) > MAX_CACHED_MAPS:
        del _map_cache[next(iter(_map_cache))]
    return picture


def _frame_around(outline: Sequence[tuple[float, float]], places: MapPlaces) -> Extent:
    """The area of interest, or where nobody has drawn that, the places themselves."""
    if outline:
        longitudes, latitudes = zip(*outline, strict=True)
        return _frame(longitudes, latitudes)
    return _frame(
        _flatten(points.longitude for points in places.points), _flatten(points.latitude for points in places.points)
    )


def _flatten(parts: "Iterable[NDArray[np.float64]]") -> list[float]:
    return [float(degree) for part in parts for degree in part]


def _frame(longitudes: Sequence[float], latitudes: Sequence[float]) -> Extent:
    """With a little room, for a single point too."""
    return Extent(
        west=max(min(longitudes) - 0.1, -180.0),
        south=max(min(latitudes) - 0.1, -90.0),
        east=min(max(longitudes) + 0.1, 180.0),
        north=min(max(latitudes) + 0.1, 90.0),
    )

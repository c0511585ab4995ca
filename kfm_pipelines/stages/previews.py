"""Previews of a run's keys for Dagster: maps, masking numbers and columns. A failure to draw never stops a run.

Drawing is slow, so keys whose data lies in the same places share one picture, also across runs of a process.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.declarations import Extent, Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfigs
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.transactions import KeyFacts, load_facts
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.configure import error_fields
from kfm_pipelines.telemetry.logs.lines import format_traceback

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.review.page.places import MapPlaces

log = logging.getLogger(__name__)

WIDTH_PX = 480  # about 20 kB, and a third more in the event log
# A picture and the columns take up to 40 kB of the event log, so only the last keys of a run have them.
DETAILED_KEYS = 20
MAX_MAPS_PER_RUN = 5  # different pictures, about 0.1 s each after the first
MAX_CACHED_MAPS = 16
MAX_FILE_BYTES = 4 * 1024 * 1024  # larger files are not read again just to be drawn

_map_cache: dict[object, bytes] = {}  # by everything that a picture shows, least recently used first


@dataclass(frozen=True, slots=True)
class CarePreview:
    policy: str
    numbers: Mapping[str, int | float]
    png: bytes


class BatchPreviews:
    def __init__(self, services: Services, dataset: Dataset, configs: KeyConfigs) -> None:
        self._services = services
        self._dataset = dataset
        self._configs = configs
        self._tables: dict[str, pa.Table] = {}

    def care(self, claims: Sequence[Claim]) -> dict[str, CarePreview]:
        """Returns previews of the masked keys among those staged, as far as they can be drawn."""
        previews: dict[str, CarePreview] = {}
        facts = load_facts(self._services.database, {claim.key: claim.epoch for claim in claims})
        for claim in claims:
            try:
                config = self._configs.for_key(claim.key)
                rules = config.rules(claim.key)
                if rules.masks:
                    previews[claim.key] = self._care_preview(config.dataset, claim, rules.policy.name, facts[claim.key])
            except Exception as error:  # noqa: BLE001 - its message may quote the data
                log.warning("no picture of %s: %s\n%s", claim.key, type(error).__name__, format_traceback(error))
        return previews

    def _care_preview(self, dataset: Dataset, claim: Claim, policy: str, facts: KeyFacts) -> CarePreview:
        from kfm_pipelines.care.review.maps import DIALOG_WIDTH, draw_release_map

        measures = facts.detail(Step.MASK)["measures"]
        path = Layout(dataset.pipeline).staged_data(claim.key, claim.epoch)
        table = self._services.store.read_table(path, partial(read_parquet, name=claim.key))
        picture = draw_release_map(self._services, dataset, claim.key, table, DIALOG_WIDTH)
        return CarePreview(policy, _numbers(measures), picture)

    def hold_table(self, claim: Claim, release: Release) -> None:
        """Holds a published table, unless it is too large, until its map is drawn."""
        if release.bbox is None or release.bytes > MAX_FILE_BYTES:
            return
        path = Layout(self._dataset.pipeline).staged_data(claim.key, claim.epoch)
        self._tables[claim.key] = self._services.store.read_table(path, partial(read_parquet, name=claim.key))

    def maps(self) -> dict[str, bytes]:
        """Returns pictures of the held tables, except of keys published under an exemption: these can be withdrawn, a
        picture in a run's log cannot."""
        drawable = {
            key: table
            for key, table in self._tables.items()
            if self._configs.for_key(key).rules(key).masking_status != "exempted"
        }
        return published_maps(self._services, self._dataset, drawable)

    def table(self, key: str) -> Table:
        config = self._configs.for_key(key)
        return config.rules(key).published_table(config.dataset)

    @property
    def store_url(self) -> str:
        return self._services.store.url


def _numbers(measures: Mapping[str, object]) -> dict[str, int | float]:
    """Returns the measures that can be plotted, one for each part of those with parts."""
    numbers: dict[str, int | float] = {}
    for name, value in measures.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        for part, number in parts.items():
            if isinstance(number, int | float):
                numbers[f"{name}_{part}" if part else name] = number
    return numbers


def published_maps(services: Services, dataset: Dataset, tables: "Mapping[str, pa.Table]") -> dict[str, bytes]:
    """Returns a PNG by key, except for keys that have no coordinates, are too many, or cannot be drawn."""
    pictures: dict[bytes, bytes] = {}
    maps: dict[str, bytes] = {}
    for key, table in tables.items():
        try:
            places = _places(services, dataset, table)
            appearance = _appearance_digest(places)
            if appearance not in pictures and len(pictures) < MAX_MAPS_PER_RUN:
                pictures[appearance] = _draw_cached(services, dataset, appearance, places)
            if appearance in pictures:
                maps[key] = pictures[appearance]
        except Exception as error:  # noqa: BLE001 - its message may quote the data
            log.warning("no map of %s", key, extra={"idempotency_key": key, **error_fields(error)})
    return maps


def _places(services: Services, dataset: Dataset, table: "pa.Table") -> "MapPlaces":
    from kfm_pipelines.care.review.page.places import released_places

    name = policy_of(services, dataset).class_column
    return released_places(table, dataset, name if name in table.column_names else None)


def _appearance_digest(places: "MapPlaces") -> bytes:
    """Digest of everything that a map shows: pictures are cached longer than their places."""
    digest = hashlib.sha256(repr((places.cells, places.without_place)).encode())
    for one in places.points:
        digest.update(repr((one.name, len(one))).encode())
        for column in (one.longitude, one.latitude, one.uncertainty_m):
            digest.update(column.tobytes())
    return digest.digest()


def _draw_cached(services: Services, dataset: Dataset, appearance: bytes, places: "MapPlaces") -> bytes:
    from kfm_pipelines.care.review.page.maps import draw_map
    from kfm_pipelines.care.review.page.places import load_outline

    aoi = dataset.key.aoi
    outline = services.load_once(("outline", aoi), lambda: load_outline(services.settings.resources, aoi))
    frame = dataset.extent or _frame_around(outline, places)
    content = (appearance, frame, dataset.title, outline)
    picture = _map_cache.pop(content, None) or draw_map(
        places, frame, title=dataset.title, outline=outline, width_px=WIDTH_PX
    )
    _map_cache[content] = picture
    if len(_map_cache) > MAX_CACHED_MAPS:
        del _map_cache[next(iter(_map_cache))]
    return picture


def _frame_around(outline: Sequence[tuple[float, float]], places: "MapPlaces") -> Extent:
    """Returns the frame of the outline, or of the places without one, with a margin for single points."""
    if outline:
        longitudes, latitudes = zip(*outline, strict=True)
    else:
        longitudes = tuple(float(degree) for points in places.points for degree in points.longitude)
        latitudes = tuple(float(degree) for points in places.points for degree in points.latitude)
    return Extent(
        west=max(min(longitudes) - 0.1, -180.0),
        south=max(min(latitudes) - 0.1, -90.0),
        east=min(max(longitudes) + 0.1, 180.0),
        north=min(max(latitudes) + 0.1, 90.0),
    )

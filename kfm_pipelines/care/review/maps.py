"""Maps of a release: as published, and, for reviewers only, as it was before masking."""

import pyarrow as pa

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.review.page.maps import draw_map
from kfm_pipelines.care.review.page.places import MapPlaces, load_outline, original_places, released_places
from kfm_pipelines.declarations import Extent
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services

PAGE_WIDTH = 1152  # two maps side by side, at twice the resolution
DIALOG_WIDTH = 900  # the width of Dagster's dialog
WORLD = Extent(west=-180.0, south=-90.0, east=180.0, north=90.0)


def draw_release_map(
    services: Services, dataset: Dataset, key: str, published: pa.Table, width_px: int = PAGE_WIDTH
) -> bytes:
    places = released_places(published, dataset, _class_column(services, dataset, published))
    return _draw(services, dataset, places, f"After masking, {key.split(':')[3]}", width_px)


def draw_original_map(services: Services, dataset: Dataset, key: str, original: pa.Table) -> bytes:
    """Restricted: shows the true places."""
    places = original_places(original, dataset, _class_column(services, dataset, original))
    return _draw(services, dataset, places, f"Before masking, {key.split(':')[3]}: restricted", PAGE_WIDTH)


def _class_column(services: Services, dataset: Dataset, table: pa.Table) -> str | None:
    name = policy_of(services, dataset).class_column
    return name if name in table.column_names else None


def _draw(services: Services, dataset: Dataset, places: MapPlaces, title: str, width_px: int) -> bytes:
    outline = load_outline(services.settings.resources, dataset.key.aoi)
    return draw_map(places, dataset.extent or WORLD, title=title, outline=outline, width_px=width_px)

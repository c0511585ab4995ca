"""Rules on the STAC Item and the file's geo metadata: governance properties, warning and bounding box."""

import json
from collections.abc import Iterator

from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.evidence import Breach, check_governance_properties
from kfm_pipelines.care.verifier.search.bbox import Box, published_boxes

_DEGREE_TOLERANCE = 1e-6  # a tenth of a metre, for rounding


def item_names_the_policy(case: Case) -> Iterator[Breach]:
    yield from check_governance_properties(case.policy, case.dataset, case.item)


def item_has_warning(case: Case) -> Iterator[Breach]:
    warning = case.item["properties"].get("anon:warning")
    if not isinstance(warning, str) or not warning.strip():
        yield Breach("item-warning", "item: anon:warning", "a warning that places are masked", "none")


def item_bbox_matches_published_places(case: Case) -> Iterator[Breach]:
    boxes = published_boxes(case)
    box, geometry = case.item.get("bbox"), case.item.get("geometry")
    if not boxes:
        if box is not None or geometry is not None:
            yield Breach("item-box", "item", "no geometry and no bbox: nothing published has a place", "some")
    elif not any(_matches_box(box, expected) and _matches_rectangle(geometry, expected) for expected in boxes):
        yield Breach("item-box", "item", "the box around the published places, twice", "something else")


def geo_metadata_bbox_matches_published_places(case: Case) -> Iterator[Breach]:
    for metadata in (case.footer.metadata, case.published.schema.metadata):
        for box in _geo_boxes((metadata or {}).get(b"geo")):
            if not any(_matches_box(box, expected) for expected in published_boxes(case)):
                yield Breach("geo-box", "data: geo", "the box around the published places", "something else")
                return


def _geo_boxes(value: bytes | None) -> Iterator[object]:
    """Yields the box of each geometry column, or None, which matches no box, when the metadata is unreadable."""
    if value is None:
        return
    try:
        columns = json.loads(value)["columns"].values()
        yield from [column["bbox"] for column in columns if "bbox" in column]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield None


def _matches_box(box: object, expected: Box) -> bool:
    if not isinstance(box, list) or len(box) != 4:
        return False
    return all(_is_near(number, wanted) for number, wanted in zip(box, expected, strict=True))


def _matches_rectangle(geometry: object, box: Box) -> bool:
    """Whether the geometry has all four corners of the box and no other points."""
    if not isinstance(geometry, dict) or geometry.get("type") != "Polygon":
        return False
    west, south, east, north = box
    rings = geometry.get("coordinates")
    if not isinstance(rings, list) or len(rings) != 1 or not isinstance(rings[0], list):
        return False
    corners = {(west, south), (east, south), (east, north), (west, north)}
    reached = [_matching_corner(point, corners) for point in rings[0]]
    return None not in reached and set(reached) == corners


def _matching_corner(point: object, corners: set[tuple[float, float]]) -> tuple[float, float] | None:
    if not isinstance(point, list) or len(point) != 2:
        return None
    return next((corner for corner in corners if all(map(_is_near, point, corner))), None)


def _is_near(found: object, expected: float) -> bool:
    return isinstance(found, int | float) and abs(found - expected) <= _DEGREE_TOLERANCE


RULES = (
    item_names_the_policy,
    item_has_warning,
    item_bbox_matches_published_places,
    geo_metadata_bbox_matches_published_places,
)

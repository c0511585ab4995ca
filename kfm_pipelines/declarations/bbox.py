"""Boxes on the map: what is around the places of a release, a page or a whole collection."""

from collections.abc import Iterable, Sequence

BBox = tuple[float, float, float, float]  # west, south, east, north


def box_from(values: Sequence[float] | None) -> BBox | None:
    """From where boxes are lists: the database and JSON."""
    return (values[0], values[1], values[2], values[3]) if values else None


def union(boxes: Iterable[BBox | None]) -> BBox | None:
    """The box around all of them; None when none has a place."""
    found = [box for box in boxes if box]
    if not found:
        return None
    return (min(b[0] for b in found), min(b[1] for b in found), max(b[2] for b in found), max(b[3] for b in found))

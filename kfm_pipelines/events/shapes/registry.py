"""The shapes that say by themselves which object they are about, in the order they are asked.

Apart from the door, because the FIFO envelope carries them as payloads.
"""

from collections.abc import Mapping
from typing import Protocol

from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes import (
    auto_update,
    eventbridge,
    landsat_c2,
    nexrad,
    s3_envelope,
    s3_notification,
    s3_test_event,
    sentinel_1,
    sentinel_2,
)


class ObjectShape(Protocol):
    """What such a shape's module offers."""

    def matches(self, document: Mapping[str, object], /) -> bool: ...

    def read(self, document: Mapping[str, object], /) -> tuple[ObjectNotice, ...]: ...


OBJECT_SHAPES: tuple[ObjectShape, ...] = (
    s3_notification,
    eventbridge,
    s3_envelope,
    auto_update,
    nexrad,
    landsat_c2,
    sentinel_1,
    sentinel_2,
    s3_test_event,
)


def shape_of(document: Mapping[str, object]) -> ObjectShape | None:
    """The first shape that knows the document."""
    return next((shape for shape in OBJECT_SHAPES if shape.matches(document)), None)

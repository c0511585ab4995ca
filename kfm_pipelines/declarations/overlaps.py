"""What two datasets may not share: names, keys, the place of their objects, and the sources of their events."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.faults import Fault
from kfm_pipelines.declarations.identity import KeyTemplate

if TYPE_CHECKING:
    from kfm_pipelines.declarations.dataset import Dataset


def overlaps(new: "Dataset", other: "Dataset") -> Iterator[Fault]:
    """Yields what `new` claims although it belongs to `other`."""
    if new.pipeline.replace("-", "_") == other.pipeline.replace("-", "_"):
        sentence = f"dataset {new.dataset!r} is declared twice, or its name is too close to {other.dataset!r}"
        yield Fault(sentence, ("dataset",))
    if new.key.source == other.key.source and _aois_overlap(new.key, other.key):
        sentence = f"key.source and key.aoi are the same as in {other.dataset!r}, so their keys would collide"
        yield Fault(sentence, ("key", "source"))
    one, two = new.input, other.input
    shared = one.bucket == two.bucket and not one.upstream
    if shared and (one.prefix.startswith(two.prefix) or two.prefix.startswith(one.prefix)):
        yield Fault(f"input.prefix overlaps that of {other.dataset!r}", ("input", "prefix"))
    taken = {event.source for event in other.input.events}
    for place, event in enumerate(new.input.events):
        if event.source in taken:
            sentence = f"input.events: {event.source} already belongs to {other.dataset!r}"
            yield Fault(sentence, ("input", "events", place, "source"))


def _aois_overlap(one: KeyTemplate, other: KeyTemplate) -> bool:
    """Whether keys of both can have the same AOI, to which members add a dash and a name."""
    return (
        one.aoi == other.aoi
        or (one.has_members and other.aoi.startswith(f"{one.aoi}-"))
        or (other.has_members and one.aoi.startswith(f"{other.aoi}-"))
    )

"""Objects that several keys of a run have rows of, kept so that each is fetched once."""

from collections import OrderedDict

from kfm_pipelines.events import IngestEvent
from kfm_pipelines.stages.compute.members import FetchedObjects

KEPT_BYTES = 256 * 1024 * 1024

ObjectVersion = tuple[str, str | None, str | None, int | None]


def version_of(event: IngestEvent) -> ObjectVersion:
    """What an event says of the content of its object; events that say the same share it."""
    return (event.asset_uri, event.version_id, event.etag, event.size)


class SharedObjects:
    """The objects used last, up to so many bytes together. The last one is kept whatever its size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[ObjectVersion, FetchedObjects] = OrderedDict()

    def __contains__(self, version: ObjectVersion) -> bool:
        return version in self._kept

    def get(self, version: ObjectVersion) -> FetchedObjects | None:
        if version in self._kept:
            self._kept.move_to_end(version)
        return self._kept.get(version)

    def keep(self, version: ObjectVersion, fetched: FetchedObjects) -> None:
        if not self._max_bytes:
            return
        self._kept[version] = fetched
        size = sum(map(_size, self._kept.values()))
        while size > self._max_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            size -= _size(dropped)


def _size(fetched: FetchedObjects) -> int:
    return sum(len(one.data) for one in fetched.values())

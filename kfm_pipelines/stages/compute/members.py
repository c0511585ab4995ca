"""Fetches what an event announces: its object, those objects of a scene's folder that describe the scene, or the data
of an upstream's release.

Each object of a folder is an input of its own, with address, ETag, size and digest. The bands that an index is derived
from are large, so they are fetched only for scenes that touch the area.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from kfm_pipelines.aws.objects import OWN_BUCKET, BucketAccess, get_object, head_object
from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Input
from kfm_pipelines.declarations.scenes import Scene
from kfm_pipelines.errors import IntegrityBroken, ObjectForbidden, ObjectMissing
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.scenes import FolderObject, bands_to_derive, objects_to_read, read_scene
from kfm_pipelines.stores import Layout, Store, read_if_exists

LoadArea = Callable[[], Area]
KEPT_BYTES = 256 * 1024 * 1024

ObjectVersion = tuple[str, str | None, str | None, int | None]


@dataclass(frozen=True)
class FetchedObject:
    """An object's bytes and its ETag in S3."""

    data: bytes
    etag: str

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


FetchedObjects = Mapping[str, FetchedObject]  # by address


def fetch_announced(event: IngestEvent, dataset: Dataset, load_area: LoadArea, store: Store) -> FetchedObjects:
    """Returns the objects that an event stands for: one, unless it is about the folder of a scene. What upstreams have
    released is in the store."""
    if event.scheme == "kfm":
        return {event.asset_uri: fetch_release(event, dataset.input, store)}
    if dataset.scene is None:
        return {event.asset_uri: fetch(event, dataset.input)}
    return _fetch_scene(event, dataset.input, dataset.scene, load_area)


def fetch_recorded(event: IngestEvent, etags: Mapping[str, str], source: Input, store: Store) -> FetchedObjects:
    """Returns exactly the objects that were fetched for this event once, by their addresses and ETags then."""
    if event.scheme == "kfm":
        return {event.asset_uri: fetch_release(event, source, store)}
    if list(etags) == [event.asset_uri]:
        return {event.asset_uri: fetch(event, source)}
    return {uri: fetch(replace(_member(event, uri), etag=etag), source) for uri, etag in etags.items()}


def fetch(event: IngestEvent, source: Input) -> FetchedObject:
    """Returns the object of an event; raises IntegrityBroken when size or ETag differ from those in the event."""
    check = partial(_check_promise, event, source)
    try:
        found = get_object(event.bucket, event.object_key, event.version_id, check, access_to(source))
        return FetchedObject(*found)
    except ObjectMissing:
        raise ObjectMissing(f"{event.asset_uri} is not there; upload it again, which sends a new event") from None


def fetch_release(event: IngestEvent, source: Input, store: Store) -> FetchedObject:
    """Returns the data of an upstream's release, which is in our own store, named by its digest. It is the ETag."""
    data = read_if_exists(store, Layout(event.bucket).content(event.etag or ""))
    if data is None:
        digest = (event.etag or "")[:12]
        raise ObjectMissing(f"{event.asset_uri}: its data {digest} is not in the store; a replay of it restores it")
    found = FetchedObject(data, hashlib.sha256(data).hexdigest())
    _check_promise(event, source, len(data), found.etag)
    return found


def _check_promise(event: IngestEvent, source: Input, length: int, etag: str) -> None:
    if event.size is not None and length != event.size:
        raise IntegrityBroken(f"{event.asset_uri} has {length} bytes; the event promised {event.size}")
    if event.etag is not None and etag != event.etag:
        raise IntegrityBroken(f"{event.asset_uri} has ETag {etag}; the event promised {event.etag}")
    if length > source.max_bytes:
        raise IntegrityBroken(f"{event.asset_uri} has {length} bytes; the dataset takes at most {source.max_bytes}")


def access_to(source: Input) -> BucketAccess:
    feed = source.provider
    return OWN_BUCKET if feed is None else BucketAccess(feed.region, feed.requester_pays)


def is_unchanged(event: IngestEvent, etag: str | None, source: Input) -> bool:
    """Whether the object still has this ETag, without downloading it."""
    if etag is None:
        return False
    try:
        return head_object(event.bucket, event.object_key, access_to(source)) == etag
    except ObjectMissing:
        return False


def is_folder_unchanged(event: IngestEvent, etags: Mapping[str, str | None], dataset: Dataset) -> bool:
    """Whether the objects of a scene that were fetched still have these ETags, and no other is there to be fetched."""
    if dataset.scene is None:
        return False
    if not all(is_unchanged(_member(event, uri), etag, dataset.input) for uri, etag in etags.items()):
        return False
    absent = [one for one in _events_of_objects(event, dataset.scene) if one.asset_uri not in etags]
    return not any(_exists(one, dataset.input) for one in absent)


def _fetch_scene(event: IngestEvent, source: Input, scene: Scene, load_area: LoadArea) -> FetchedObjects:
    folder = event.asset_uri
    found: dict[str, FetchedObject] = {}
    for wanted in objects_to_read(scene.product, folder):
        found |= _fetch_wanted(event, wanted, source)
    if scene.derive is not None:
        described = read_scene(scene.product, folder, {name: one.data for name, one in found.items()})
        if described.touches(load_area().shape):
            bands = bands_to_derive(folder)
            found |= {name: fetch(_member(event, f"{folder}{name}"), source) for name in bands}
    return {f"{folder}{name}": one for name, one in found.items()}


def _fetch_wanted(event: IngestEvent, wanted: FolderObject, source: Input) -> dict[str, FetchedObject]:
    limited = source.model_copy(update={"max_bytes": min(source.max_bytes, wanted.max_bytes)})
    try:
        return {wanted.name: fetch(_member(event, f"{event.asset_uri}{wanted.name}"), limited)}
    except (ObjectMissing, ObjectForbidden):
        # Without permission to list a bucket, S3 forbids what is not there.
        if wanted.optional:
            return {}
        if wanted.instead is None:
            raise
        try:
            return _fetch_wanted(event, wanted.instead, source)
        except (ObjectMissing, ObjectForbidden):
            pass
        raise  # about the object that should be there


def _events_of_objects(event: IngestEvent, scene: Scene) -> Iterator[IngestEvent]:
    for wanted in objects_to_read(scene.product, event.asset_uri):
        yield _member(event, f"{event.asset_uri}{wanted.name}")


def _member(event: IngestEvent, asset_uri: str) -> IngestEvent:
    """Returns the event as if it were about an object of its folder."""
    return replace(event, object_key=asset_uri.removeprefix(f"s3://{event.bucket}/"))


def _exists(event: IngestEvent, source: Input) -> bool:
    try:
        head_object(event.bucket, event.object_key, access_to(source))
    except (ObjectMissing, ObjectForbidden):
        return False
    return True


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

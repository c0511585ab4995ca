"""What S3 says happened to an object, whichever road the news took: one meaning, one identity.

Belongs here: what S3's event names mean and the notice they end in. Does not: where each road writes the fields.
"""

from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.errors import ShapeUnknown
from kfm_pipelines.events.identity import normalise_version_id, s3_object_identity, s3_removal_identity
from kfm_pipelines.events.locations import check_object_key
from kfm_pipelines.events.notice import Change, ObjectNotice, normalise_etag
from kfm_pipelines.text import quote_value

_CREATED = "ObjectCreated:"
_DELETE_MARKERS = ("ObjectRemoved:DeleteMarkerCreated", "LifecycleExpiration:DeleteMarkerCreated")
_REMOVED = ("ObjectRemoved:Delete", "LifecycleExpiration:Delete")


@dataclass(frozen=True, slots=True)
class S3Object:
    """An object as S3 names it: the key already decoded, the rest as written. A removal has no size; 0 stands in."""

    bucket: str
    key: str
    etag: str | None
    version_id: str | None
    size: int
    sequencer: str | None


def check_event_name(event_name: object) -> None:
    """Refuse other kinds of S3 event by name, before their other fields are mistaken for broken ones."""
    if (
        isinstance(event_name, str)
        and not event_name.startswith(_CREATED)
        and event_name not in _DELETE_MARKERS + _REMOVED
    ):
        raise ShapeUnknown(f"S3 event {quote_value(event_name)} is not handled; created and removed objects are")


def change_of(event_name: str, version_id: str | None) -> Change:
    """Removing a named version takes that version out of history; any other removal ends the object as it was."""
    if event_name.startswith(_CREATED):
        return "created"
    return "purged" if event_name in _REMOVED and normalise_version_id(version_id) else "deleted"


def s3_notice(shape: str, change: Change, s3_object: S3Object, event_time: datetime) -> ObjectNotice:
    """The notice all roads from S3 end in. A removal has no content, whatever S3 says about the marker's."""
    check_object_key(s3_object.key)
    version_id, sequencer = normalise_version_id(s3_object.version_id), s3_object.sequencer or None
    etag, size = (normalise_etag(s3_object.etag), int(s3_object.size)) if change == "created" else (None, None)
    identity = (
        s3_removal_identity(s3_object.bucket, s3_object.key, version_id, sequencer, event_time)
        if size is None
        else s3_object_identity(s3_object.bucket, s3_object.key, etag, version_id, size)
    )
    return ObjectNotice(
        shape=shape,
        identity=identity,
        bucket=s3_object.bucket,
        object_key=s3_object.key,
        etag=etag,
        version_id=version_id,
        size=size,
        sequencer=sequencer,
        event_time=event_time,
        change=change,
    )

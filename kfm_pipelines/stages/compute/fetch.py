"""Source objects: the bytes an event points at, taken only if they are what the event promised."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import IntegrityBroken, ObjectMissing
from kfm_pipelines.events import IngestEvent

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef


@dataclass(frozen=True)
class FetchedObject:
    """An object's bytes, and the ETag S3 gave them."""

    data: bytes
    etag: str

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def fetch(event: IngestEvent, max_bytes: int) -> FetchedObject:
    """The object of an event; its size and ETag must agree with the event wherever the event names them."""
    answer = _get(event)
    length = answer["ContentLength"]
    if event.size is not None and length != event.size:
        raise IntegrityBroken(f"{event.asset_uri} has {length} bytes; the event promised {event.size}")
    etag = answer["ETag"].strip('"')
    if event.etag is not None and etag != event.etag:
        raise IntegrityBroken(f"{event.asset_uri} has ETag {etag}; the event promised {event.etag}")
    if length > max_bytes:
        raise IntegrityBroken(f"{event.asset_uri} has {length} bytes; the dataset takes at most {max_bytes}")
    with translate_aws_errors(f"reading {event.asset_uri}"):
        return FetchedObject(answer["Body"].read(), etag)


def is_unchanged(event: IngestEvent, etag: str | None) -> bool:
    """Whether the object still has this ETag, without downloading it."""
    if etag is None:
        return False
    client = s3_client()
    try:
        with translate_aws_errors(f"asking about {event.asset_uri}"):
            return client.head_object(Bucket=event.bucket, Key=event.object_key)["ETag"].strip('"') == etag
    except ObjectMissing:
        return False


def _get(event: IngestEvent) -> "GetObjectOutputTypeDef":
    try:
        with translate_aws_errors(f"reading {event.asset_uri}"):
            client = s3_client()
            if event.version_id is None:
                return client.get_object(Bucket=event.bucket, Key=event.object_key)
            return client.get_object(Bucket=event.bucket, Key=event.object_key, VersionId=event.version_id)
    except ObjectMissing:
        raise ObjectMissing(f"{event.asset_uri} is not there; upload it again, which sends a new event") from None

"""Notices: what any message shape is read into before a dataset takes it, and the S3 addresses in them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kfm_pipelines.declarations.dataset import pipeline_of
from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.text import quote_value

Priority = Literal["high", "normal", "low"]
# created: written or replaced; deleted: gone from now on; purged: this version is gone, as if it had never existed.
Change = Literal["created", "deleted", "purged"]

# s3: an object in a bucket; kfm: a published key of one of our pipelines, which stands in the place of the bucket.
Scheme = Literal["s3", "kfm"]

MAX_KEY_BYTES = 1024  # S3's own limit
RELEASE_SCHEME = "kfm://"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DOT_SEGMENT = re.compile(r"(?:^|/)\.\.?(?:/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectNotice:
    """What happened to one object. Times are UTC; fields the message leaves out are None."""

    shape: str
    identity: str
    scheme: Scheme = "s3"
    bucket: str
    object_key: str
    etag: str | None = None
    version_id: str | None = None
    size: int | None = None
    sequencer: str | None = None
    event_time: datetime
    dataset: str | None = None
    granule_start: datetime | None = None
    granule_end: datetime | None = None
    priority: Priority = "normal"
    change: Change = "created"

    @property
    def asset_uri(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.object_key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadNotice:
    """A producer's event that names no object; the dataset that listens to it declares which object it means."""

    shape: str
    identity: str
    event_source: str
    event_time: datetime
    priority: Priority
    payload: Mapping[str, str | int]


Notice = ObjectNotice | PayloadNotice


def normalise_etag(etag: str | None) -> str | None:
    """Strips quotes and the weak mark, so that ETags from different shapes compare equal."""
    return (etag or "").removeprefix("W/").strip('"') or None


def check_object_key(key: str) -> None:
    """Refuses keys that S3 stores but a file system, a log line or a database column would read differently."""
    if _CONTROL.search(key):
        raise ContractBroken(f"object key {quote_value(key)} has control characters")
    if "\\" in key:
        raise ContractBroken(f"object key {quote_value(key)} has a backslash, which some readers take for a slash")
    if _DOT_SEGMENT.search(key):
        raise ContractBroken(f"object key {quote_value(key)} has a . or .. segment")
    if not 1 <= len(key.encode("utf-8")) <= MAX_KEY_BYTES:
        raise ContractBroken(f"object key {quote_value(key)} must have 1 to {MAX_KEY_BYTES} bytes")


def check_folder_key(key: str) -> None:
    """Refuses folders that do not end in exactly one slash or would be refused as object keys."""
    if not key.endswith("/") or "" in key[:-1].split("/"):
        raise ContractBroken(f"folder {quote_value(key)} must end in / and have no empty path segment")
    check_object_key(key)


def read_asset_uri(uri: str) -> tuple[str, str]:
    """Returns bucket and object key. The key is not percent-decoded."""
    bucket, key = _split_uri("asset_uri", uri)
    if "" in key.split("/"):
        raise ContractBroken(f"asset_uri {quote_value(uri)} has an empty path segment")
    check_object_key(key)
    return bucket, key


def read_folder_uri(field: str, uri: str) -> tuple[str, str]:
    """Returns bucket and key of a folder, trailing slash included."""
    bucket, key = _split_uri(field, uri)
    check_folder_key(key)
    return bucket, key


def _split_uri(field: str, uri: str) -> tuple[str, str]:
    scheme, separator, rest = uri.partition("://")
    if scheme != "s3" or not separator:
        raise ContractBroken(f"{field} must be s3://bucket/key, not {quote_value(uri)}")
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ContractBroken(f"{field} {quote_value(uri)} must name a bucket after s3://, not {quote_value(bucket)}")
    if "?" in key or "#" in key:
        raise ContractBroken(f"{field} {quote_value(uri)} must have no query and no fragment")
    return bucket, key


def release_uri(dataset: str, key: str) -> str:
    """Returns the address of a key, whichever revision of it is published."""
    return f"{RELEASE_SCHEME}{pipeline_of(dataset)}/{key}"


def read_release_uri(uri: str) -> tuple[str, str] | None:
    """Returns pipeline and key of an upstream's address; None for an object's."""
    if not uri.startswith(RELEASE_SCHEME):
        return None
    pipeline, _, key = uri.removeprefix(RELEASE_SCHEME).partition("/")
    return pipeline, key

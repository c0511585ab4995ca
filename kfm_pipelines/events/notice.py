"""What any message shape says, before a dataset has claimed it: about one object, or about one yet to be named.

Belongs here: the value every shape ends in, and how its fields are written. Does not: how a shape is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Priority = Literal["high", "normal", "low"]
# created: written or replaced; deleted: gone from now on; purged: this one version is gone, as if it had never been.
Change = Literal["created", "deleted", "purged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectNotice:
    """What happened to one object. Times are UTC; what the message does not say is None."""

    shape: str
    identity: str
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
        return f"s3://{self.bucket}/{self.object_key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadNotice:
    """News from a producer that names no object. Which object it means, the dataset that listens to it declares."""

    shape: str
    identity: str
    event_source: str
    event_time: datetime
    priority: Priority
    payload: Mapping[str, str | int]


Notice = ObjectNotice | PayloadNotice


def normalise_etag(etag: str | None) -> str | None:
    """The tag itself, without quotes or weak mark, so that tags from different roads compare."""
    return (etag or "").removeprefix("W/").strip('"') or None

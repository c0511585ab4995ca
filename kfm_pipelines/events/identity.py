"""Event identity: which messages are about the same content, however often and by whichever road they arrive.

The encoding is a list in RFC 8785 JSON whose first element names the rule and its version, so no two rules and no two
ways of cutting the same characters into fields can collide. Golden vectors pin it: stored identities outlive the code.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import rfc8785

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.text import quote_value


def s3_object_identity(bucket: str, key: str, etag: str | None, version_id: str | None, size: int) -> str:
    """One content of one S3 object; what is not known counts as null, never as empty text."""
    return _digest(["kfm-s3-object-1", bucket, key, etag or None, normalise_version_id(version_id), size])


def s3_removal_identity(
    bucket: str, key: str, version_id: str | None, sequencer: str | None, event_time: datetime
) -> str:
    """One removal of one S3 object. It has no content to be known by, so its place in the order of writes counts.

    The time stands in only where the store gave no sequencer: roads round it differently.
    """
    said = ["kfm-s3-removal-1", bucket, key, normalise_version_id(version_id), sequencer or None]
    when = event_time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return _digest(said if sequencer else [*said, when])


def auto_update_identity(dataset: str, asset_uri: str, content_etag: str) -> str:
    """One content of one asset of a dataset; the ETag exactly as sent, weak mark and quotes included."""
    return _digest(["kfm-auto-update-1", dataset, asset_uri, content_etag])


def dedupe_key_identities(event_source: str, dedupe_key: str, count: int) -> list[str]:
    """What a producer calls the same event, under its own name, so that no producer can name another's."""
    said = ["kfm-dedupe-key-1", event_source, dedupe_key]
    return [_digest(said)] if count == 1 else [_digest([*said, record]) for record in range(count)]


def feed_identities(document: Mapping[str, Any], count: int) -> list[str]:
    """A message with no better name than what it says; numbered from 0 when it says several things.

    The body is written and hashed once, whatever the count: a large message may hold thousands of records.
    """
    body = hashlib.sha256(b'["kfm-feed-body-1",' + canonical_json(document))
    endings = [b"]"] if count == 1 else [b",%d]" % record for record in range(count)]
    return [_extend_digest(body, ending) for ending in endings]


def body_identity(raw: bytes) -> str:
    """A message that was refused and so has nothing but its bytes to be known by."""
    return _digest(["kfm-body-1", hashlib.sha256(raw).hexdigest()])


def normalise_version_id(version_id: str | None) -> str | None:
    """S3 writes the version of an object in an unversioned bucket as the text `null`."""
    return None if version_id in (None, "", "null") else version_id


def canonical_json(document: Any) -> bytes:
    """RFC 8785 JSON. It cannot write every number that can be read, and what has no identity is no event."""
    try:
        return rfc8785.dumps(document)
    except rfc8785.CanonicalizationError as error:
        raise ContractBroken(
            f"message holds a number beyond 2^53, which has no canonical form: {quote_value(str(error))}"
        ) from None


def _digest(named_fields: list[Any]) -> str:
    return hashlib.sha256(canonical_json(named_fields)).hexdigest()


def _extend_digest(digest: "hashlib._Hash", ending: bytes) -> str:
    whole = digest.copy()
    whole.update(ending)
    return whole.hexdigest()

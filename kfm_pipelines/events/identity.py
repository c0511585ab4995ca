"""Event identities: messages about the same content get the same one, however often and in whatever shape they arrive.

An identity is the digest of a list in RFC 8785 JSON whose first element names the rule and its version, so that neither
two rules nor two ways to split the same text into fields can collide. Golden vectors pin it: stored identities outlive
the code.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import rfc8785

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.text import quote_value


def s3_object_identity(bucket: str, key: str, etag: str | None, version_id: str | None, size: int) -> str:
    """Identifies one content of one S3 object; unknown parts are null, never empty text."""
    return _digest(["kfm-s3-object-1", bucket, key, etag or None, normalise_version_id(version_id), size])


def s3_removal_identity(
    bucket: str, key: str, version_id: str | None, sequencer: str | None, event_time: datetime
) -> str:
    """Identifies one removal by its sequencer; only without one by its time, which message shapes round differently."""
    fields = ["kfm-s3-removal-1", bucket, key, normalise_version_id(version_id), sequencer or None]
    when = event_time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return _digest(fields if sequencer else [*fields, when])


def auto_update_identity(dataset: str, asset_uri: str, content_etag: str) -> str:
    """Identifies one content of one asset of a dataset; the ETag counts as sent, weak mark and quotes included."""
    return _digest(["kfm-auto-update-1", dataset, asset_uri, content_etag])


def release_identity(key: str, upstream_key: str, revision: int, content_hash: str) -> str:
    """Identifies one revision of an upstream's key as an input of one key."""
    return _digest(["kfm-release-1", key, upstream_key, revision, content_hash])


def dedupe_key_identities(event_source: str, dedupe_key: str, count: int) -> list[str]:
    """Hashes a producer's dedupe key with its source, so that no producer can choose another's identity."""
    fields = ["kfm-dedupe-key-1", event_source, dedupe_key]
    return [_digest(fields)] if count == 1 else [_digest([*fields, record]) for record in range(count)]


def feed_identities(document: Mapping[str, Any], count: int) -> list[str]:
    """Identifies the records of a message by its whole body, hashed once, and numbered from 0 if there are several."""
    body = hashlib.sha256(b'["kfm-feed-body-1",' + canonical_json(document))
    endings = [b"]"] if count == 1 else [b",%d]" % record for record in range(count)]
    return [_extend_digest(body, ending) for ending in endings]


def member_identity(identity: str, member: str) -> str:
    """Identifies what an event means for one of the members that share its object."""
    return _digest(["kfm-member-1", identity, member])


def body_identity(raw: bytes) -> str:
    """Identifies a refused message by its bytes."""
    return _digest(["kfm-body-1", hashlib.sha256(raw).hexdigest()])


def normalise_version_id(version_id: str | None) -> str | None:
    """Returns None for the text `null`, which S3 sends for objects in an unversioned bucket."""
    return None if version_id in (None, "", "null") else version_id


def canonical_json(document: Any) -> bytes:
    """Formats RFC 8785 JSON. Refuses numbers that have no canonical form, because the message has no identity then."""
    try:
        return rfc8785.dumps(document)
    except rfc8785.CanonicalizationError as error:
        raise ContractBroken(
            f"message holds a number beyond 2^53, which has no canonical form: {quote_value(str(error))}"
        ) from None


def _digest(named_fields: list[Any]) -> str:
    return hashlib.sha256(canonical_json(named_fields)).hexdigest()


def _extend_digest(digest: "hashlib._Hash", ending: bytes) -> str:
    extended = digest.copy()
    extended.update(ending)
    return extended.hexdigest()

"""Event identity: which messages are about the same content, however often and by whichever road they arrive.

The encoding is a list in RFC 8785 JSON whose first element names the rule and its version, so no two rules and no two
ways of cutting the same characters into fields can collide. Golden vectors pin it: stored identities outlive the code.
"""

import hashlib

import rfc8785


def s3_object_identity(bucket: str, key: str, etag: str | None, version_id: str | None, size: int) -> str:
    """One content of one S3 object; what is not known counts as null, never as empty text."""
    return _digest(["kfm-s3-object-1", bucket, key, etag or None, stated_version(version_id), size])


def auto_update_identity(dataset: str, asset_uri: str, content_etag: str) -> str:
    """One content of one asset of a dataset; the ETag exactly as sent, weak mark and quotes included."""
    return _digest(["kfm-auto-update-1", dataset, asset_uri, content_etag])


def body_identity(raw: bytes) -> str:
    """A message that was refused and so has nothing but its bytes to be known by."""
    return _digest(["kfm-body-1", hashlib.sha256(raw).hexdigest()])


def stated_version(version_id: str | None) -> str | None:
    """S3 writes the version of an object in an unversioned bucket as the text `null`."""
    return None if version_id in (None, "", "null") else version_id


def _digest(named_fields: list[str | int | None]) -> str:
    return hashlib.sha256(rfc8785.dumps(named_fields)).hexdigest()

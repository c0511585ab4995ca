"""Where an object is: `s3://bucket/key`, with keys that mean one place only.

Belongs here: which addresses are well-formed. Does not: which of them are declared (that is folding's).
"""

import re

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events.quoting import quoted

MAX_KEY_BYTES = 1024  # S3's own limit

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def check_object_key(key: str) -> None:
    """Refuse what S3 may store but a file system, a log line or a database column would read differently."""
    if _CONTROL.search(key):
        raise ContractBroken(f"object key {quoted(key)} has control characters")
    if any(segment in (".", "..") for segment in key.split("/")):
        raise ContractBroken(f"object key {quoted(key)} has a . or .. segment")
    if not 1 <= len(key.encode("utf-8")) <= MAX_KEY_BYTES:
        raise ContractBroken(f"object key {quoted(key)} must have 1 to {MAX_KEY_BYTES} bytes")


def read_asset_uri(uri: str) -> tuple[str, str]:
    """Bucket and object key of an asset URI. The key is taken as written: no percent-decoding."""
    scheme, separator, rest = uri.partition("://")
    if scheme != "s3" or not separator:
        raise ContractBroken(f"asset_uri must be s3://bucket/key, not {quoted(uri)}")
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ContractBroken(f"asset_uri {quoted(uri)} must name a bucket after s3://, not {quoted(bucket)}")
    if "?" in key or "#" in key:
        raise ContractBroken(f"asset_uri {quoted(uri)} must have no query and no fragment")
    if "" in key.split("/"):
        raise ContractBroken(f"asset_uri {quoted(uri)} has an empty path segment")
    check_object_key(key)
    return bucket, key

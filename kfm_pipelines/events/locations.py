"""Where an object is: `s3://bucket/key`, with keys that mean one place only.

Belongs here: which addresses are well-formed. Does not: which of them are declared (that is folding's).
"""

import re

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.text import quote_value

MAX_KEY_BYTES = 1024  # S3's own limit

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DOT_SEGMENT = re.compile(r"(?:^|/)\.\.?(?:/|$)")


def check_object_key(key: str) -> None:
    """Refuse what S3 may store but a file system, a log line or a database column would read differently."""
    if _CONTROL.search(key):
        raise ContractBroken(f"object key {quote_value(key)} has control characters")
    if "\\" in key:
        raise ContractBroken(f"object key {quote_value(key)} has a backslash, which some readers take for a slash")
    if _DOT_SEGMENT.search(key):
        raise ContractBroken(f"object key {quote_value(key)} has a . or .. segment")
    if not 1 <= len(key.encode("utf-8")) <= MAX_KEY_BYTES:
        raise ContractBroken(f"object key {quote_value(key)} must have 1 to {MAX_KEY_BYTES} bytes")


def check_folder_key(key: str) -> None:
    """A folder is a key that ends in one slash; everything an object key must be, it must be too."""
    if not key.endswith("/") or "" in key[:-1].split("/"):
        raise ContractBroken(f"folder {quote_value(key)} must end in / and have no empty path segment")
    check_object_key(key)


def read_asset_uri(uri: str) -> tuple[str, str]:
    """Bucket and object key of an asset URI. The key is taken as written: no percent-decoding."""
    bucket, key = _split("asset_uri", uri)
    if "" in key.split("/"):
        raise ContractBroken(f"asset_uri {quote_value(uri)} has an empty path segment")
    check_object_key(key)
    return bucket, key


def read_folder_uri(field: str, uri: str) -> tuple[str, str]:
    """Bucket and key of a folder, trailing slash included."""
    bucket, key = _split(field, uri)
    check_folder_key(key)
    return bucket, key


def _split(field: str, uri: str) -> tuple[str, str]:
    scheme, separator, rest = uri.partition("://")
    if scheme != "s3" or not separator:
        raise ContractBroken(f"{field} must be s3://bucket/key, not {quote_value(uri)}")
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ContractBroken(f"{field} {quote_value(uri)} must name a bucket after s3://, not {quote_value(bucket)}")
    if "?" in key or "#" in key:
        raise ContractBroken(f"{field} {quote_value(uri)} must have no query and no fragment")
    return bucket, key

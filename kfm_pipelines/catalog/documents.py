"""JSON documents as bytes: sorted, indented, UTF-8, so that equal documents are equal files; checksums."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SHA256_MULTIHASH_PREFIX = "1220"  # how a multihash begins: 12 names sha-256, 20 is its length in bytes


def document_bytes(document: Mapping[str, object]) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def checksum(digest: str) -> str:
    """A sha-256 digest as an Item writes it."""
    return f"{SHA256_MULTIHASH_PREFIX}{digest}"


def read_item(data: bytes | None) -> Mapping[str, Any]:
    """Empty when it cannot be read, which then agrees with nothing."""
    try:
        item = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return {}
    return item if isinstance(item, dict) else {}


def asset_of(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    assets = item.get("assets")
    asset = assets.get(name) if isinstance(assets, dict) else None
    return asset if isinstance(asset, dict) else {}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

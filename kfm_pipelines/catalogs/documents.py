"""JSON documents as bytes: sorted, indented, UTF-8, so that equal documents are equal files; checksums."""

import json
from collections.abc import Mapping

SHA256 = "1220"  # how a multihash begins: 12 names sha-256, 20 is its length in bytes


def document_bytes(document: Mapping[str, object]) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def checksum(digest: str) -> str:
    """A sha-256 digest as an Item writes it."""
    return f"{SHA256}{digest}"

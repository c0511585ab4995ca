"""What the verifier is given, what it says, and the digest that ties the two together."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Evidence:
    """The staged bytes as they would be published, and what only the restricted tier holds."""

    data: bytes  # Parquet
    item: bytes  # STAC Item
    documents: Mapping[str, bytes]  # whatever else is staged, by name
    original: bytes  # Parquet, before masking
    crosswalk: bytes  # Parquet: which row of the original went into which published record
    rewritten: bytes  # the table in `data`, read and written again by the one writer there is
    records: Mapping[str, bytes] = field(default_factory=dict)  # published next to it, and not part of its digest

    def __repr__(self) -> str:
        return f"Evidence({digest_of(self)})"  # the bytes must not get into a log


@dataclass(frozen=True, slots=True)
class Breach:
    """One rule that does not hold. Never a value of the data: only names from the declarations, and counts."""

    rule: str
    subject: str
    expected: str
    measured: str


def digest_of(evidence: Evidence) -> str:
    """One digest for everything that would be published together."""
    hashes = {name: _sha256(document) for name, document in evidence.documents.items()}
    return release_digest(_sha256(evidence.data), _sha256(evidence.item), hashes)


def release_digest(content_hash: str, item_hash: str, document_hashes: Mapping[str, str]) -> str:
    """The same digest, for who knows only the SHA-256 of each part."""
    named = (part for name in sorted(document_hashes) for part in (name, document_hashes[name]))
    digest = hashlib.sha256()
    for part in (content_hash, item_hash, *named):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

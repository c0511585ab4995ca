"""What the verifier is given, what it says, and the digest that ties the two together."""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


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


class EvidenceUnreadable(Exception):
    """Carries the breach from where it is found to where breaches are gathered."""

    def __init__(self, subject: str, expected: str, measured: str = "something else") -> None:
        super().__init__(f"{subject} cannot be read")
        self.breach = Breach("evidence-readable", subject, expected, measured)


def read_table(data: bytes, subject: str) -> "tuple[pa.Table, pq.FileMetaData]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(io.BytesIO(data))
        table = file.read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError):
        raise EvidenceUnreadable(subject, "a Parquet file") from None
    return table.combine_chunks(), file.metadata


def read_encoded_table(data: bytes, subject: str) -> "tuple[pa.Table, pa.Schema, pq.FileMetaData]":
    """The table, what the file says of its columns, and the footer. A column of few different texts comes as those and
    their numbers: most say the same in every row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(io.BytesIO(data))
        schema, footer = file.schema_arrow, file.metadata
        few = [
            field.name for field in schema if pa.types.is_string(field.type) and _has_repeated_texts(footer, field.name)
        ]
        table = pq.ParquetFile(io.BytesIO(data), read_dictionary=few).read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError):
        raise EvidenceUnreadable(subject, "a Parquet file") from None
    return table.combine_chunks(), schema, footer


def _has_repeated_texts(footer: "pq.FileMetaData", name: str) -> bool:
    """Whether texts take less than the lengths of so many different ones would; a guess, for how to read them."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    mine = [chunk for chunk in chunks if chunk.path_in_schema == name]
    return bool(sum(chunk.total_uncompressed_size for chunk in mine) < 4 * sum(chunk.num_values for chunk in mine))


def read_item(data: bytes) -> Mapping[str, Any]:
    item = _read_json(data, "item")
    if not isinstance(item, dict) or not isinstance(item.get("properties"), dict):
        raise EvidenceUnreadable("item", "a JSON object with properties")
    return item


def read_document(data: bytes) -> object:
    document = _read_json(data, "documents")
    if not isinstance(document, dict | list):
        raise EvidenceUnreadable("documents", "JSON objects or arrays")
    return document


def _read_json(data: bytes, subject: str) -> object:
    """Twice the same name in one object is refused: a reader would see one value, and a scan the other."""
    try:
        return json.loads(data, object_pairs_hook=_reject_duplicate_names, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise EvidenceUnreadable(subject, "a JSON document") from None


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the same name twice")
    return found


def _reject_constant(constant: str) -> object:
    raise ValueError(constant)

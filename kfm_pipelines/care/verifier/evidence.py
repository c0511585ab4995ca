"""The verifier's entry point, its input and output, the digest that binds them, and readers of the input."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.declarations.dataset import Dataset

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from shapely import Geometry

THREADS = 2  # more would hold more intermediate arrays at once


@dataclass(frozen=True, slots=True)
class Reassembled:
    """What follows from a published raster: all files of the release by name, and what the Item states of each."""

    files: Mapping[str, bytes]
    properties: Mapping[str, Mapping[str, Any]]  # by asset


@dataclass(frozen=True, slots=True)
class Evidence:
    """The staged bytes as they would be published, and what only the restricted tier holds."""

    data: bytes  # Parquet
    item: bytes  # STAC Item
    documents: Mapping[str, bytes]  # everything else staged, by name
    original: bytes  # Parquet, before masking
    crosswalk: bytes  # Parquet: which row of the original went into which published record
    rewrite: Callable[[], bytes]  # reads the table in `data` and writes it again with the canonical writer
    records: Mapping[str, bytes] = field(default_factory=dict)  # published alongside, not part of the digest
    files: Mapping[str, bytes] = field(default_factory=dict)  # beside the data; the Item has their digests
    footprints: "tuple[Geometry, ...]" = field(default=(), repr=False)  # what a raster must not show
    reassemble: Callable[[bytes], Reassembled] | None = None  # makes the release again from its raster

    def __repr__(self) -> str:
        return f"Evidence({digest_of(self)})"  # keeps the bytes out of logs


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that does not hold. Contains declared names and counts, never values of the data."""

    rule: str
    subject: str
    expected: str
    measured: str


def verify(policy: Policy, dataset: Dataset, evidence: Evidence) -> tuple[Breach, ...]:
    """Returns a breach for every rule that does not hold; a release is green only when there are none."""
    # Loads numpy, pyarrow and shapely, which loading the definitions must not.
    from kfm_pipelines.care.verifier.case import open_case
    from kfm_pipelines.care.verifier.stages import first_breaches

    try:
        item = read_item(evidence.item)
        if policy.is_open:
            return tuple(check_governance_properties(policy, dataset, item))
        if policy.raster_rule is not None:
            from kfm_pipelines.care.verifier.rasters import raster_breaches

            return raster_breaches(policy, dataset, evidence, item)
        if evidence.files:
            return (Breach("files", "release", "no file beside a masked table", f"{len(evidence.files)}"),)
        with ThreadPoolExecutor(THREADS) as executor:  # nearly all of the work releases the GIL
            return first_breaches(open_case(policy, dataset, evidence, item, executor), executor)
    except EvidenceUnreadable as unreadable:
        return (unreadable.breach,)


def check_governance_properties(policy: Policy, dataset: Dataset, item: Mapping[str, Any]) -> Iterator[Breach]:
    """Checks properties that every policy requires, open ones included."""
    properties = item["properties"]
    if properties.get("kfm:policy") != policy.name:
        yield Breach("item-policy", "item: kfm:policy", policy.name, "something else")
    if policy.labels and properties.get("kfm:labels") != policy.labels:
        yield Breach("item-labels", "item: kfm:labels", "the policy's labels", "something else")
    if dataset.sovereignty is not None and not _contains_notice(
        properties.get("kfm:sovereignty"), dataset.sovereignty.notice
    ):
        yield Breach("item-sovereignty", "item: kfm:sovereignty", "the notice of the nations", "something else")


def digest_of(evidence: Evidence) -> str:
    """Returns one digest of everything that would be published together."""
    hashes = {name: _sha256(document) for name, document in evidence.documents.items()}
    return release_digest(_sha256(evidence.data), _sha256(evidence.item), hashes)


def release_digest(content_hash: str, item_hash: str, document_hashes: Mapping[str, str]) -> str:
    """Returns the same digest, given only the SHA-256 of each part."""
    named = (part for name in sorted(document_hashes) for part in (name, document_hashes[name]))
    digest = hashlib.sha256()
    for part in (content_hash, item_hash, *named):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class EvidenceUnreadable(Exception):
    """Raised with the breach to report when a part of the evidence cannot be read."""

    def __init__(self, subject: str, expected: str, measured: str = "something else") -> None:
        super().__init__(f"{subject} cannot be read")
        self.breach = Breach("evidence-readable", subject, expected, measured)


def read_table(data: bytes, subject: str, *, encoded: bool = False) -> "tuple[pa.Table, pa.Schema, pq.FileMetaData]":
    """Returns table, schema and footer of the file. `encoded` gives a dictionary to texts and geometries that repeat,
    in the table alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        schema, footer = file.schema_arrow, file.metadata
        encodable = [field.name for field in schema if encoded and field.type in (pa.string(), pa.binary())]
        few = [name for name in encodable if _has_repeated_values(footer, name)]
        table = pq.ParquetFile(pa.BufferReader(data), metadata=footer, read_dictionary=few).read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError):
        raise EvidenceUnreadable(subject, "a Parquet file") from None
    return table.combine_chunks(), schema, footer


def _has_repeated_values(footer: "pq.FileMetaData", name: str) -> bool:
    """Guesses from the size of a column whether its values repeat; only decides how they are read."""
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
    """Refuses duplicate names in an object: a reader might see one value and the scan another."""
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


def _contains_notice(value: object, notice: str) -> bool:
    if isinstance(value, dict):
        return any(_contains_notice(inner, notice) for inner in value.values())
    return value == notice

"""What is published of a key, read from the store as a reader would, and the table that the gates judged then."""

from collections.abc import Mapping
from typing import Any

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX, asset_of, sha256
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.gates.published_release import PublishedSubject, RecordedRelease
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.stores import Layout, Store, read_if_exists

DOCUMENTS = ("provenance",)  # assets of an Item besides its data


def read_published(store: Store, layout: Layout, revision: Revision) -> PublishedSubject:
    recorded = RecordedRelease(
        key=revision.key,
        content_hash=revision.content_hash,
        item_hash=revision.item_hash,
        content_path=layout.content(revision.content_hash),
        processed_path=layout.processed_data(revision.key),
        item_path=layout.item(revision.key),
    )
    subject = PublishedSubject(
        recorded,
        item=read_if_exists(store, recorded.item_path),
        content=read_if_exists(store, recorded.content_path),
        processed_hash=store.digest(recorded.processed_path),
        documents={},
    )
    documents = {name: _document(store, layout, subject.parsed_item, name) for name in DOCUMENTS if subject.parsed_item}
    return PublishedSubject(recorded, subject.item, subject.content, subject.processed_hash, documents)


def published_data(store: Store, layout: Layout, revision: Revision) -> bytes:
    """The bytes of a revision; IntegrityBroken when they are not what they were, ObjectMissing when they are gone."""
    data = store.read(layout.content(revision.content_hash))
    if sha256(data) != revision.content_hash:
        raise IntegrityBroken(f"{revision.key}: the published bytes are not what was published")
    return data


def table_as_published(dataset: Dataset, policy: Policy, item: Mapping[str, Any]) -> Table | None:
    """The declared table of a key that was published under today's policy, transform version and schema. None for
    another: it was judged by other rules, and nobody has said that it has to keep these."""
    properties = item.get("properties")
    if not isinstance(properties, dict):
        return None
    if (properties.get("kfm:transform_version"), properties.get("kfm:policy")) != (
        dataset.key.transform_version,
        policy.name,
    ):
        return None
    table = dataset.table if "kfm:exemption" in properties else published_table(dataset, policy)
    columns = {(column.name, column.type, column.unit) for column in table.columns}
    return table if _columns(properties.get("table:columns")) == columns else None


def _columns(listed: object) -> set[tuple[object, object, object]]:
    """Name, type and unit of what an Item says it has columns of."""
    columns = [column for column in listed if isinstance(column, dict)] if isinstance(listed, list) else []
    return {(column.get("name"), column.get("type"), column.get("unit")) for column in columns}


def _document(store: Store, layout: Layout, item: Mapping[str, Any], name: str) -> tuple[int, str] | None:
    """Size and digest of the document at the address that its checksum in the Item gives it."""
    digest = str(asset_of(item, name).get("file:checksum")).removeprefix(SHA256_MULTIHASH_PREFIX)
    if not digest.isalnum():
        return None
    data = read_if_exists(store, layout.document(digest))
    return None if data is None else (len(data), sha256(data))

"""Reads what is published of a key from the store, as a reader would, with the table it was judged by."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX, asset_of, sha256
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.gates.published_release import PublishedSubject
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.stores import Layout, Store, read_if_exists

DOCUMENTS = ("provenance",)  # assets of an Item besides its data


def read_published(store: Store, layout: Layout, revision: Revision) -> PublishedSubject:
    subject = PublishedSubject(
        revision,
        layout,
        item=read_if_exists(store, layout.item(revision.key)),
        content=read_if_exists(store, layout.content(revision.content_hash)),
        processed_hash=store.digest(layout.processed_data(revision.key)),
        documents={},
    )
    documents = {name: _document(store, layout, subject.parsed_item, name) for name in DOCUMENTS if subject.parsed_item}
    return replace(subject, documents=documents)


def published_data(store: Store, layout: Layout, revision: Revision) -> bytes:
    """Raises IntegrityBroken when the bytes have changed, ObjectMissing when they are gone."""
    data = store.read(layout.content(revision.content_hash))
    if sha256(data) != revision.content_hash:
        raise IntegrityBroken(f"{revision.key}: the published bytes are not what was published")
    return data


def table_as_published(dataset: Dataset, policy: Policy, item: Mapping[str, Any]) -> Table | None:
    """Returns the table of a key published under the current policy, transform version and schema; None for others."""
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
    columns = [column for column in listed if isinstance(column, dict)] if isinstance(listed, list) else []
    return {(column.get("name"), column.get("type"), column.get("unit")) for column in columns}


def _document(store: Store, layout: Layout, item: Mapping[str, Any], name: str) -> tuple[int, str] | None:
    """Returns size and digest of the document to which its checksum in the Item leads."""
    digest = str(asset_of(item, name).get("file:checksum")).removeprefix(SHA256_MULTIHASH_PREFIX)
    if not digest.isalnum():
        return None
    data = read_if_exists(store, layout.document(digest))
    return None if data is None else (len(data), sha256(data))

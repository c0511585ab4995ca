"""Reads the published documents of many keys in few round trips."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX, asset_of, sha256
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.stores import Layout, Store

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeyDocuments:
    """What readers see of a key. Without an Item nothing of it is published."""

    item: Document | None = None
    revisions: Mapping[int, Document] = field(default_factory=dict)
    provenance: Mapping[int, Document] = field(default_factory=dict)  # of each revision


@dataclass(frozen=True, slots=True)
class ReadDocuments:
    documents: Mapping[str, KeyDocuments]
    problems: Mapping[str, str]  # of the other keys


def read_documents(store: Store, layout: Layout, keys: Sequence[str]) -> ReadDocuments:
    """Reads Items and histories, then revisions, then provenance: three calls for any number of keys."""
    heads = store.read_all(path for key in keys for path in (layout.item(key), layout.history(key)))
    published = [key for key in keys if layout.item(key) in heads]
    found = {key: KeyDocuments() for key in keys if layout.item(key) not in heads}
    problems: dict[str, str] = {}
    paths: dict[str, list[str]] = {}
    for key in published:
        with _collected(problems, key):
            paths[key] = _linked_revisions(layout, key, heads)
    files = store.read_all(path for several in paths.values() for path in several)
    for key, several in paths.items():
        with _collected(problems, key):
            revisions = dict(_numbered(files[path]) for path in several)
            found[key] = KeyDocuments(_parse(heads[layout.item(key)]), revisions)
    graphs = store.read_all(layout.document(digest) for digest in sorted(_provenance_digests(found, problems)))
    for key, one in list(found.items()):
        with _collected(problems, key):
            digests = {number: digest_of_asset(revision, "provenance") for number, revision in one.revisions.items()}
            provenance = {number: _verified(graphs, layout, digest) for number, digest in digests.items()}
            found[key] = KeyDocuments(one.item, one.revisions, provenance)
    return ReadDocuments({key: one for key, one in found.items() if key not in problems}, problems)


def digest_of_asset(document: Document, name: str) -> str:
    return str(asset_of(document, name)["file:checksum"]).removeprefix(SHA256_MULTIHASH_PREFIX)


@contextmanager
def _collected(problems: dict[str, str], key: str) -> Iterator[None]:
    """Turns what is wrong with the documents of one key into its problem."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, IntegrityBroken) as error:
        problems[key] = f"its documents cannot be read: {type(error).__name__}: {str(error)[:200]}"


def _provenance_digests(found: Mapping[str, KeyDocuments], problems: dict[str, str]) -> set[str]:
    digests: set[str] = set()
    for key, one in found.items():
        with _collected(problems, key):
            digests.update(digest_of_asset(revision, "provenance") for revision in one.revisions.values())
    return digests


def _linked_revisions(layout: Layout, key: str, heads: Mapping[str, bytes]) -> list[str]:
    history = _parse(heads[layout.history(key)])
    names = [str(one["href"]).rpartition("/")[2] for one in history["links"] if one["rel"] == "item"]
    return [layout.revision(key, int(name.removesuffix(".json"))) for name in names]


def _numbered(data: bytes) -> tuple[int, Document]:
    document = _parse(data)
    return int(document["properties"]["kfm:revision"]), document


def _verified(graphs: Mapping[str, bytes], layout: Layout, digest: str) -> Document:
    data = graphs[layout.document(digest)]
    if sha256(data) != digest:
        raise IntegrityBroken("the provenance does not match its Item")
    return _parse(data)


def _parse(data: bytes) -> Document:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("a document is no JSON object")
    return document

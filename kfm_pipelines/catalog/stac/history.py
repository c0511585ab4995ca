"""The history of a key: every revision as it was, with what came before and after it, and how it came about.

Belongs here: the documents. Does not: where they are, or when they are written.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.catalog.documents import checksum, document_bytes
from kfm_pipelines.catalog.facts import ATTESTATION, MANIFEST, DocumentFacts
from kfm_pipelines.catalog.stac.item import TIMESTAMPS_EXTENSION
from kfm_pipelines.catalog.stac.pages import stac_version
from kfm_pipelines.catalog.stac.profile import PROFILE, check_document

SBOM = "sbom.json"
# What tells how a revision came about: the name of its asset, its title and its type.
RECORDS: Mapping[str, tuple[str, str, str]] = {
    MANIFEST: ("manifest", "What it was made from, by which software, under which rules", "application/json"),
    ATTESTATION: ("attestation", "Signed statement of how it was made (SLSA, DSSE)", "application/vnd.dsse+json"),
    SBOM: ("sbom", "All software that was installed", "application/vnd.cyclonedx+json"),
}


def revision_document(
    item: Mapping[str, Any],
    revision: int,
    published: datetime,
    records: Mapping[str, DocumentFacts],
    predecessor: int | None,
) -> bytes:
    """The Item of a revision that has just become the current one. `item` is the one readers see."""
    key = item["id"]
    document = {
        **item,
        "id": f"{key}@{revision}",
        "stac_extensions": [*item["stac_extensions"], *_extension_if_missing(item, TIMESTAMPS_EXTENSION)],
        "properties": {
            **item["properties"],
            "version": str(revision),
            "published": published.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "kfm:revision": revision,
        },
        "assets": {
            **{name: {**asset, "href": _href_from_child(asset["href"])} for name, asset in item["assets"].items()},
            **{RECORDS[name][0]: _record_asset(name, facts) for name, facts in records.items()},
        },
        "links": _links(item, key, predecessor),
    }
    return _check_and_encode(document)


def superseded_document(document: Mapping[str, Any], successor: int) -> bytes:
    """The Item of a revision after a later one has taken its place."""
    links = [link for link in document["links"] if link["rel"] != "successor-version"]
    changed = {
        **document,
        "properties": {**document["properties"], "deprecated": True},
        "links": [*links, _version_link("successor-version", successor)],
    }
    return _check_and_encode(changed)


def history_document(pipeline: str, key: str, revisions: Sequence[int]) -> bytes:
    """The catalog of a key's revisions."""
    document = {
        "type": "Catalog",
        "stac_version": stac_version(),
        "id": f"{key}-history",
        "title": f"Revisions of {key}",
        "description": f"Every revision of {key} that may be seen, the current one last.",
        "links": [
            {"rel": "root", "href": "../../catalog.json", "type": "application/json"},
            {"rel": "parent", "href": "../collection.json", "type": "application/json", "title": pipeline},
            {"rel": "latest-version", "href": f"../items/{key}.json", "type": "application/geo+json"},
            *(
                {
                    "rel": "item",
                    "href": f"./{key}/{revision}.json",
                    "type": "application/geo+json",
                    "title": f"revision {revision}",
                }
                for revision in sorted(revisions)
            ),
        ],
    }
    check_document("catalog", document)
    return document_bytes(document)


def _check_and_encode(document: Mapping[str, Any]) -> bytes:
    check_document("item", document, profiled=PROFILE in document["stac_extensions"])
    return document_bytes(document)


def _links(item: Mapping[str, Any], key: str, predecessor: int | None) -> list[dict[str, Any]]:
    kept = [
        {**link, "href": _href_from_child(link["href"])}
        for link in item["links"]
        if link["rel"] not in ("parent", "version-history")
    ]
    return [
        *kept,
        {"rel": "parent", "href": f"../{key}.json", "type": "application/json"},
        {"rel": "version-history", "href": f"../{key}.json", "type": "application/json"},
        {"rel": "latest-version", "href": f"../../items/{key}.json", "type": "application/geo+json"},
        *([_version_link("predecessor-version", predecessor)] if predecessor else []),
    ]


def _version_link(relation: str, revision: int) -> dict[str, Any]:
    return {"rel": relation, "href": f"./{revision}.json", "type": "application/geo+json"}


def _href_from_child(href: str) -> str:
    """A relative address, as it is one folder further down."""
    return f"../{href}" if href.startswith("../") else href


def _extension_if_missing(item: Mapping[str, Any], extension: str) -> list[str]:
    return [] if extension in item["stac_extensions"] else [extension]


def _record_asset(name: str, facts: DocumentFacts) -> dict[str, Any]:
    _, title, kind = RECORDS[name]
    return {
        "href": facts.href,
        "title": title,
        "type": kind,
        "roles": ["metadata"],
        "file:size": facts.size,
        "file:checksum": checksum(facts.digest),
    }

"""Snapshots of declarations, environments and coefficients, stored by digest."""

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785

from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.state.database import Database, jsonb


def save_snapshot(database: Database, kind: str, document: Mapping[str, Any]) -> str:
    """Stores the document and returns its digest."""
    digest = digest_of(document)
    database.execute(
        "INSERT INTO kfm.frozen (digest, kind, document) VALUES (%(digest)s, %(kind)s, %(document)s)"
        " ON CONFLICT DO NOTHING",
        {"digest": digest, "kind": kind, "document": jsonb(dict(document))},
    )
    return digest


def load_snapshot(database: Database, digest: str) -> Mapping[str, Any]:
    """Raises IntegrityBroken when the document is missing or no longer matches its digest."""
    rows = database.fetch("SELECT document FROM kfm.frozen WHERE digest = %(digest)s", {"digest": digest})
    if not rows:
        raise IntegrityBroken(f"there is no snapshot {digest[:12]}")
    document: Mapping[str, Any] = rows[0]["document"]
    if digest_of(document) != digest:
        raise IntegrityBroken(f"snapshot {digest[:12]} no longer matches its digest")
    return document


def digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(rfc8785.dumps(document)).hexdigest()

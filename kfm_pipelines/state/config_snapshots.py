"""Documents that shaped releases, as they were when they did: declarations and environments, by digest."""

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785

from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.state.database import Database, jsonb


def save_snapshot(database: Database, kind: str, document: Mapping[str, Any]) -> str:
    """Keep the document; its digest, which is the same for the same document."""
    digest = digest_of(document)
    database.execute(
        "INSERT INTO kfm.frozen (digest, kind, document) VALUES (%(digest)s, %(kind)s, %(document)s)"
        " ON CONFLICT DO NOTHING",
        {"digest": digest, "kind": kind, "document": jsonb(dict(document))},
    )
    return digest


def load_snapshot(database: Database, digest: str) -> Mapping[str, Any]:
    """The document of that digest; IntegrityBroken when it is not there, or not any more what it was."""
    rows = database.fetch("SELECT document FROM kfm.frozen WHERE digest = %(digest)s", {"digest": digest})
    if not rows:
        raise IntegrityBroken(f"no frozen document {digest[:12]} is known")
    document: Mapping[str, Any] = rows[0]["document"]
    if digest_of(document) != digest:
        raise IntegrityBroken(f"the frozen document {digest[:12]} is not what it was")
    return document


def digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(rfc8785.dumps(document)).hexdigest()

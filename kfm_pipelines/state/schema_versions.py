"""Which schema readers of each dataset were promised: the one it began with, then whatever somebody approved."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.state.database import Database

Columns = Mapping[str, Mapping[str, Any]]
BEGINNING = "first use"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    dataset: str
    version: int
    digest: str
    columns: Columns
    approved_by: str
    reason: str
    at: datetime


def recognise(database: Database, dataset: str, columns: Columns, digest: str) -> SchemaVersion:
    """The schema approved last; a dataset that has none begins with this one."""
    known = versions_of(database, dataset)
    if not known:
        _insert(database, dataset, 1, columns, digest, BEGINNING, "the declaration the dataset began with")
        known = versions_of(database, dataset)
    return known[-1]


def approve(
    database: Database, before: SchemaVersion, columns: Columns, digest: str, actor: str, reason: str
) -> SchemaVersion:
    """Promise readers another schema from now on; SchemaRefused when somebody else was quicker."""
    if not _insert(database, before.dataset, before.version + 1, columns, digest, actor, reason):
        raise SchemaRefused(f"{before.dataset}: somebody else has just approved schema version {before.version + 1}")
    return versions_of(database, before.dataset)[-1]


def versions_of(database: Database, dataset: str) -> list[SchemaVersion]:
    rows = database.fetch(
        """
        SELECT dataset, version, digest, columns, approved_by, reason, at
        FROM kfm.schema_versions WHERE dataset = %(dataset)s ORDER BY version
        """,
        {"dataset": dataset},
    )
    return [SchemaVersion(**row) for row in rows]


def _insert(
    database: Database, dataset: str, version: int, columns: Columns, digest: str, actor: str, reason: str
) -> bool:
    from psycopg.types.json import Jsonb

    return bool(
        database.execute(
            """
            INSERT INTO kfm.schema_versions (dataset, version, digest, columns, approved_by, reason)
            VALUES (%(dataset)s, %(version)s, %(digest)s, %(columns)s, %(actor)s, %(reason)s)
            ON CONFLICT DO NOTHING
            """,
            {
                "dataset": dataset,
                "version": version,
                "digest": digest,
                "columns": Jsonb({name: dict(facts) for name, facts in columns.items()}),
                "actor": actor,
                "reason": reason,
            },
        )
    )

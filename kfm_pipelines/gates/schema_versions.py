"""Which schema readers of each dataset were promised: the one it began with, then whatever somebody approved.

An approval is for the keys of one transform version, so that a new version can be promised other columns while keys of
the old one are still being made. A version nobody has approved anything for has what was approved last.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.state.database import Database, jsonb

Columns = Mapping[str, Mapping[str, Any]]
FIRST_USE = "first use"


@dataclass(frozen=True, slots=True)
class Schema:
    """What a dataset is declared with, for the keys of one transform version."""

    dataset: str
    transform_version: str
    digest: str
    columns: Columns


@dataclass(frozen=True, slots=True)
class SchemaVersion(Schema):
    """A schema that was approved."""

    version: int = 0
    approved_by: str = ""
    reason: str = ""
    at: datetime | None = field(default=None, compare=False)


def get_or_create_version(database: Database, declared: Schema) -> SchemaVersion:
    """The approved schema that the keys of this version have; a dataset that has none begins with the declared one."""
    known = versions_of(database, declared.dataset)
    if not known:
        _insert(database, declared, 1, FIRST_USE, "the declaration the dataset began with")
        known = versions_of(database, declared.dataset)
    own = [version for version in known if version.transform_version == declared.transform_version]
    return (own or known)[-1]


def approve(database: Database, declared: Schema, actor: str, reason: str) -> SchemaVersion:
    """Promise readers another schema from now on; SchemaRefused when somebody else was quicker."""
    number = max((known.version for known in versions_of(database, declared.dataset)), default=0) + 1
    if not _insert(database, declared, number, actor, reason):
        raise SchemaRefused(f"{declared.dataset}: somebody else has just approved schema version {number}")
    return versions_of(database, declared.dataset)[-1]


def versions_of(database: Database, dataset: str) -> list[SchemaVersion]:
    rows = database.fetch(
        """
        SELECT dataset, transform_version, digest, columns, version, approved_by, reason, at
        FROM kfm.schema_versions WHERE dataset = %(dataset)s ORDER BY version
        """,
        {"dataset": dataset},
    )
    return [SchemaVersion(**row) for row in rows]


def _insert(database: Database, declared: Schema, version: int, actor: str, reason: str) -> bool:
    return bool(
        database.execute(
            """
            INSERT INTO kfm.schema_versions (dataset, version, transform_version, digest, columns, approved_by, reason)
            VALUES (%(dataset)s, %(version)s, %(transform_version)s, %(digest)s, %(columns)s, %(actor)s, %(reason)s)
            ON CONFLICT DO NOTHING
            """,
            {
                "dataset": declared.dataset,
                "version": version,
                "transform_version": declared.transform_version,
                "digest": declared.digest,
                "columns": jsonb({name: dict(facts) for name, facts in declared.columns.items()}),
                "actor": actor,
                "reason": reason,
            },
        )
    )

"""Approved schemas, by transform version: what readers were promised, which only a person may change.

The first publication of a dataset makes the promise. Until then its declaration may change freely.
"""

from dataclasses import asdict, dataclass, field
from datetime import datetime

from kfm_pipelines.care.governance import table_for_readers
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.gates.schema import SchemaColumns, columns_of, diff_schemas, schema_digest
from kfm_pipelines.gates.verdict import ApprovedSchema
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Connection, Database, jsonb

FIRST_USE = "first use"
NOTHING_PUBLISHED = "nothing is published yet, so there is nothing to approve: the first publication fixes the schema"


@dataclass(frozen=True, slots=True)
class Schema:
    """The declared schema for the keys of one transform version."""

    dataset: str
    transform_version: str
    digest: str
    columns: SchemaColumns


@dataclass(frozen=True, slots=True)
class SchemaVersion(Schema):
    version: int = 0
    approved_by: str = ""
    reason: str = ""
    at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SchemaProposal:
    declared: Schema
    approved: SchemaVersion | None  # None before the first publication

    @property
    def changes(self) -> list[str]:
        return diff_schemas(self.approved.columns, self.declared.columns) if self.approved else []


def proposal_of(services: Services, dataset: Dataset) -> SchemaProposal:
    """Compares the table for readers with what was approved."""
    columns = columns_of(table_for_readers(services, dataset))
    declared = Schema(dataset.dataset, dataset.key.transform_version, schema_digest(columns), columns)
    with services.database.transaction() as connection:
        return SchemaProposal(declared, binding_version(connection, declared))


def approved_schema(proposal: SchemaProposal) -> ApprovedSchema | None:
    """Returns what the gate compares; None when nothing is promised yet."""
    if proposal.approved is None:
        return None
    return ApprovedSchema(proposal.approved.version, proposal.approved.columns, proposal.declared.columns)


def approve(services: Services, dataset: Dataset, by: str, reason: str) -> SchemaVersion:
    """Approves the declared schema. Raises SchemaRefused when it is already the approved one, or there is none yet."""
    proposal = proposal_of(services, dataset)
    if proposal.approved is None:
        raise SchemaRefused(f"{dataset.dataset}: {NOTHING_PUBLISHED}")
    if not proposal.changes:
        version = proposal.approved.version
        raise SchemaRefused(
            f"{dataset.dataset}: the declaration has schema version {version}, so there is nothing to approve"
        )
    return record_approval(services.database, proposal.declared, by, reason)


def approve_if_changed(services: Services, dataset: Dataset, by: str, reason: str) -> None:
    """Approves a schema change that is part of another decision."""
    if proposal_of(services, dataset).changes:
        approve(services, dataset, by, reason)


def binding_version(connection: Connection, declared: Schema) -> SchemaVersion | None:
    """Returns the schema that keys of this transform version must have; None while nothing of the dataset is published,
    whatever was recorded before."""
    known = versions_of(connection, declared.dataset)
    if not known or not _is_published(connection, declared.dataset):
        return None
    own = [version for version in known if version.transform_version == declared.transform_version]
    return (own or known)[-1]


def fix_first_schema(connection: Connection, first: Schema) -> SchemaVersion | None:
    """Records the schema of a dataset's first publication in its transaction, or returns the one that an earlier
    publication has fixed. Publications of the dataset wait for each other here."""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))"
    connection.execute(lock, {"name": f"kfm first schema {first.dataset}"})
    if (fixed := binding_version(connection, first)) is not None:
        return fixed
    known = versions_of(connection, first.dataset)
    if not known or (known[-1].digest, known[-1].transform_version) != (first.digest, first.transform_version):
        _insert(connection, first, len(known) + 1, FIRST_USE, "the declaration the dataset began with")
    return None


def record_approval(database: Database, declared: Schema, actor: str, reason: str) -> SchemaVersion:
    """Records the next version. Raises SchemaRefused when another approval came first."""
    with database.transaction() as connection:
        number = len(versions_of(connection, declared.dataset)) + 1
        if not _insert(connection, declared, number, actor, reason):
            raise SchemaRefused(f"{declared.dataset}: schema version {number} was approved in the meantime")
        return versions_of(connection, declared.dataset)[-1]


def versions_of(connection: Connection, dataset: str) -> list[SchemaVersion]:
    query = """
        SELECT dataset, transform_version, digest, columns, version, approved_by, reason, at
        FROM kfm.schema_versions WHERE dataset = %(dataset)s ORDER BY version
    """
    rows = connection.execute(query, {"dataset": dataset})
    return [SchemaVersion(**row) for row in rows]


def _is_published(connection: Connection, dataset: str) -> bool:
    query = """
        SELECT EXISTS (SELECT FROM kfm.keys k JOIN kfm.revisions r ON r.key = k.key WHERE k.dataset = %(dataset)s) AS it
    """
    [row] = connection.execute(query, {"dataset": dataset}).fetchall()
    return bool(row["it"])


def _insert(connection: Connection, declared: Schema, version: int, actor: str, reason: str) -> bool:
    statement = """
        INSERT INTO kfm.schema_versions (dataset, version, transform_version, digest, columns, approved_by, reason)
        VALUES (%(dataset)s, %(version)s, %(transform_version)s, %(digest)s, %(columns)s, %(actor)s, %(reason)s)
        ON CONFLICT DO NOTHING
    """
    parameters = {
        **asdict(declared),
        "columns": jsonb({name: dict(facts) for name, facts in declared.columns.items()}),
        "version": version,
        "actor": actor,
        "reason": reason,
    }
    return bool(connection.execute(statement, parameters).rowcount)

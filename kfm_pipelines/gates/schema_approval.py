"""Approved schemas, by transform version: what readers were promised, which only a person may change."""

from dataclasses import asdict, dataclass, field
from datetime import datetime

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.gates.schema import SchemaColumns, columns_of, diff_schemas, schema_digest
from kfm_pipelines.gates.verdict import ApprovedSchema
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Database, jsonb

FIRST_USE = "first use"


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
    approved: SchemaVersion

    @property
    def changes(self) -> list[str]:
        return diff_schemas(self.approved.columns, self.declared.columns)


def proposal_of(services: Services, dataset: Dataset) -> SchemaProposal:
    """Compares the table that the policy leaves for readers with what was approved. Exemptions change no promise."""
    columns = columns_of(published_table(dataset, policy_of(services, dataset)))
    declared = Schema(dataset.dataset, dataset.key.transform_version, schema_digest(columns), columns)
    return SchemaProposal(declared, get_or_create_version(services.database, declared))


def approved_schema(services: Services, dataset: Dataset) -> ApprovedSchema:
    proposal = proposal_of(services, dataset)
    return ApprovedSchema(proposal.approved.version, proposal.approved.columns, proposal.declared.columns)


def approve(services: Services, dataset: Dataset, by: str, reason: str) -> SchemaVersion:
    """Approves the declared schema. Raises SchemaRefused when it is already the approved one."""
    proposal = proposal_of(services, dataset)
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


def get_or_create_version(database: Database, declared: Schema) -> SchemaVersion:
    """Returns the schema approved for this transform version; a dataset's first declaration counts as approved."""
    known = versions_of(database, declared.dataset)
    if not known:
        _insert(database, declared, 1, FIRST_USE, "the declaration the dataset began with")
        known = versions_of(database, declared.dataset)
    own = [version for version in known if version.transform_version == declared.transform_version]
    return (own or known)[-1]


def record_approval(database: Database, declared: Schema, actor: str, reason: str) -> SchemaVersion:
    """Records the next version. Raises SchemaRefused when another approval came first."""
    number = max((known.version for known in versions_of(database, declared.dataset)), default=0) + 1
    if not _insert(database, declared, number, actor, reason):
        raise SchemaRefused(f"{declared.dataset}: schema version {number} was approved in the meantime")
    return versions_of(database, declared.dataset)[-1]


def versions_of(database: Database, dataset: str) -> list[SchemaVersion]:
    query = """
        SELECT dataset, transform_version, digest, columns, version, approved_by, reason, at
        FROM kfm.schema_versions WHERE dataset = %(dataset)s ORDER BY version
    """
    rows = database.fetch(query, {"dataset": dataset})
    return [SchemaVersion(**row) for row in rows]


def _insert(database: Database, declared: Schema, version: int, actor: str, reason: str) -> bool:
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
    inserted = database.execute(statement, parameters)
    return bool(inserted)

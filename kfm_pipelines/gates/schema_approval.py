"""Approving a schema: readers were promised columns, types and units, and only a person may promise them others."""

from dataclasses import dataclass

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.gates import ApprovedSchema, schema_versions
from kfm_pipelines.gates.schema_diff import columns_of, diff_schemas, schema_digest
from kfm_pipelines.gates.schema_versions import Schema, SchemaVersion
from kfm_pipelines.services import Services


@dataclass(frozen=True, slots=True)
class SchemaProposal:
    """The schema approved last, and how the declaration differs from it."""

    declared: Schema
    approved: SchemaVersion

    @property
    def changes(self) -> list[str]:
        return diff_schemas(self.approved.columns, self.declared.columns)


def proposal_of(services: Services, dataset: Dataset) -> SchemaProposal:
    """Readers get what the policy leaves of the declared table. What an exemption lets out is no promise."""
    columns = columns_of(published_table(dataset, policy_of(services, dataset)))
    declared = Schema(dataset.dataset, dataset.key.transform_version, schema_digest(columns), columns)
    return SchemaProposal(declared, schema_versions.get_or_create_version(services.database, declared))


def approved_schema(services: Services, dataset: Dataset) -> ApprovedSchema:
    """What the schema gate goes by."""
    proposal = proposal_of(services, dataset)
    return ApprovedSchema(proposal.approved.version, proposal.approved.columns, proposal.declared.columns)


def approve(services: Services, dataset: Dataset, by: str, reason: str) -> SchemaVersion:
    """Promise readers what the declaration has now; SchemaRefused when that is what they were promised."""
    proposal = proposal_of(services, dataset)
    if not proposal.changes:
        version = proposal.approved.version
        raise SchemaRefused(
            f"{dataset.dataset}: the declaration has schema version {version}, so there is nothing to approve"
        )
    return schema_versions.approve(services.database, proposal.declared, by, reason)


def approve_if_changed(services: Services, dataset: Dataset, by: str, reason: str) -> None:
    """For a decision that the change of schema is part of."""
    if proposal_of(services, dataset).changes:
        approve(services, dataset, by, reason)

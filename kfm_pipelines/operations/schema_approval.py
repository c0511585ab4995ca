"""Approving a schema: readers were promised columns, types and units, and only a person may promise them others."""

from dataclasses import dataclass

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.gates import ApprovedSchema
from kfm_pipelines.gates.schema_diff import columns_of, differences, schema_digest
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state import schema_versions
from kfm_pipelines.state.schema_versions import SchemaVersion


@dataclass(frozen=True, slots=True)
class Proposal:
    """The schema approved last, and how the declaration differs from it."""

    approved: SchemaVersion
    changes: list[str]
    digest: str


def proposal_of(workshop: Workshop, dataset: Dataset) -> Proposal:
    declared = columns_of(dataset.table)
    approved = schema_versions.recognise(workshop.database, dataset.dataset, declared, schema_digest(declared))
    return Proposal(approved, differences(approved.columns, declared), schema_digest(declared))


def approved_schema(workshop: Workshop, dataset: Dataset) -> ApprovedSchema:
    """What the schema gate goes by."""
    approved = proposal_of(workshop, dataset).approved
    return ApprovedSchema(approved.version, approved.columns)


def approve(workshop: Workshop, dataset: Dataset, by: str, reason: str) -> SchemaVersion:
    """Promise readers what the declaration has now; SchemaRefused when that is what they were promised."""
    proposal = proposal_of(workshop, dataset)
    if not proposal.changes:
        raise SchemaRefused(
            f"{dataset.dataset}: the declaration has schema version {proposal.approved.version}, "
            "so there is nothing to approve"
        )
    columns = columns_of(dataset.table)
    return schema_versions.approve(workshop.database, proposal.approved, columns, proposal.digest, by, reason)

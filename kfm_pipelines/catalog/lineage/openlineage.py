"""OpenLineage: what a run does, for the tools that collect this from everywhere: START, then COMPLETE, FAIL or ABORT.

The events tell of runs, so unlike the documents of a release they know the time. Of objects that are masked they say
where they are, never what is in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from kfm_pipelines.declarations import Column, Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.state.revisions import ReleaseDescription

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, RunEvent

State = Literal["START", "COMPLETE", "FAIL", "ABORT"]
NAMESPACE = "kfm"
PRODUCER = "urn:kfm:kfm-pipelines"


@dataclass(frozen=True, slots=True)
class RunInput:
    """An object that a run read."""

    uri: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput(ReleaseDescription):
    """What a run published of one key."""

    location: str  # the name people know, in full
    table: Table
    masked: bool
    gates: Mapping[str, bool]
    inputs: tuple[RunInput, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as far as it has come."""

    run_id: str
    state: State
    at: datetime
    inputs: tuple[RunInput, ...] = ()
    outputs: tuple[RunOutput, ...] = ()
    failed: int = 0  # keys


def run_event(dataset: Dataset, facts: RunFacts) -> "RunEvent":
    from openlineage.client.event_v2 import Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run

    failure = error_message_run.ErrorMessageRunFacet(
        message=f"{facts.failed} keys were not published", programmingLanguage="python", producer=PRODUCER
    )
    return RunEvent(
        eventTime=facts.at.isoformat(),
        producer=PRODUCER,
        eventType=RunState[facts.state],
        run=Run(facts.run_id, facets={"errorMessage": failure} if facts.state in ("FAIL", "ABORT") else {}),
        job=_job(dataset),
        inputs=[_input(one) for one in facts.inputs],
        outputs=[_output(dataset, one) for one in facts.outputs],
    )


def _job(dataset: Dataset) -> "Job":
    from openlineage.client.event_v2 import Job
    from openlineage.client.facet_v2 import documentation_job, job_type_job, ownership_job

    owners = [ownership_job.Owner(name=owner, type="MAINTAINER") for owner in dataset.owners]
    return Job(
        NAMESPACE,
        dataset.dataset,
        facets={
            "jobType": job_type_job.JobTypeJobFacet("BATCH", "DAGSTER", "JOB", producer=PRODUCER),
            "documentation": documentation_job.DocumentationJobFacet(dataset.description, producer=PRODUCER),
            "ownership": ownership_job.OwnershipJobFacet(owners, producer=PRODUCER),
        },
    )


def _input(one: RunInput) -> "InputDataset":
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset

    facets: dict[str, Any] = {}
    if one.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(one.version, producer=PRODUCER)
    return InputDataset(*_dataset_name(one.uri), facets=facets)


def _output(dataset: Dataset, one: RunOutput) -> "OutputDataset":
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        data_quality_metrics_dataset,
        dataset_version_dataset,
        lifecycle_state_change_dataset,
        output_statistics_output_dataset,
        schema_dataset,
    )

    lifecycle = lifecycle_state_change_dataset.LifecycleStateChange
    return OutputDataset(
        *_dataset_name(one.location),
        facets={
            "schema": schema_dataset.SchemaDatasetFacet(
                [
                    schema_dataset.SchemaDatasetFacetFields(
                        name=column.name, type=column.type, description=column.description, ordinal_position=place
                    )
                    for place, column in enumerate(one.table.columns, 1)
                ],
                producer=PRODUCER,
            ),
            "columnLineage": _column_lineage(dataset, one),
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(
                f"{one.revision}-{one.content_hash[:16]}", producer=PRODUCER
            ),
            "lifecycleStateChange": lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                lifecycle.CREATE if one.revision == 1 else lifecycle.OVERWRITE, producer=PRODUCER
            ),
            # The specification wants metrics of columns to be there; of what is in a column nothing is told.
            "dataQualityMetrics": data_quality_metrics_dataset.DataQualityMetricsDatasetFacet(
                columnMetrics={}, rowCount=one.rows, bytes=one.bytes, fileCount=1, producer=PRODUCER
            ),
            "dataQualityAssertions": _assertions(one.gates),
        },
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=one.rows, size=one.bytes, fileCount=1, producer=PRODUCER
            )
        },
    )


def _assertions(gates: Mapping[str, bool]) -> Any:
    """The specification has it on what a run reads; our gates judge what is published, before anybody can read it."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    judged = [quality.Assertion("gate", passed, severity="error", name=gate) for gate, passed in gates.items()]
    return quality.DataQualityAssertionsDatasetFacet(judged, producer=PRODUCER)


def _column_lineage(dataset: Dataset, one: RunOutput) -> Any:
    """Which columns of the objects a published column comes from. A column that only the policy adds, such as the
    number of a row, comes from none; and what a transform makes of what, only its code knows."""
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage

    declared = [] if dataset.transform else dataset.table.columns
    published = {column.name for column in one.table.columns}
    fields = {}
    for column in declared:
        made = one.masked or column.derived is not None
        how = lineage.Transformation("DIRECT", "TRANSFORMATION" if made else "IDENTITY", masking=one.masked)
        read = [
            (*_dataset_name(read.uri), name) for read in one.inputs for name in _source_columns(dataset.table, column)
        ]
        if read and column.name in published:
            fields[column.name] = lineage.Fields([lineage.InputField(*whence, [how]) for whence in read])
    return lineage.ColumnLineageDatasetFacet(fields, producer=PRODUCER)


def _source_columns(table: Table, column: Column) -> list[str]:
    """The columns as they are called in the objects: no object has a derived one."""
    names = (table.longitude_column, table.latitude_column) if column.derived else (column.name,)
    return [found.source or found.name for found in map(table.column, filter(None, names))]


def _dataset_name(uri: str) -> tuple[str, str]:
    """A file's namespace and name as OpenLineage names them: `s3://bucket` and the key, or `file` and the path."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", uri.removeprefix(f"{parts.scheme}://{parts.netloc}").lstrip("/")

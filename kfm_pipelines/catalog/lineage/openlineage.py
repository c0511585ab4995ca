"""OpenLineage events of runs: START, then COMPLETE, FAIL or ABORT. Unlike documents of a release they contain times. Of
masked objects they state the address, never the content.
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

    change = lifecycle_state_change_dataset.LifecycleStateChange
    changed = change.CREATE if one.revision == 1 else change.OVERWRITE
    version = f"{one.revision}-{one.content_hash[:16]}"
    fields = [
        schema_dataset.SchemaDatasetFacetFields(
            name=column.name, type=column.type, description=column.description, ordinal_position=place
        )
        for place, column in enumerate(one.table.columns, 1)
    ]
    return OutputDataset(
        *_dataset_name(one.location),
        facets={
            "schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER),
            "columnLineage": _column_lineage(dataset, one),
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(version, producer=PRODUCER),
            "lifecycleStateChange": lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                changed, producer=PRODUCER
            ),
            # The specification requires column metrics; ours are empty, because they would reveal values.
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
    """Reports the gates on the output; the specification has assertions on inputs, but our gates judge outputs."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    judged = [quality.Assertion("gate", passed, severity="error", name=gate) for gate, passed in gates.items()]
    return quality.DataQualityAssertionsDatasetFacet(judged, producer=PRODUCER)


def _column_lineage(dataset: Dataset, one: RunOutput) -> Any:
    """Maps published columns to columns of the inputs. Columns added by the policy have no source, and those of a
    transform are not known."""
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage

    declared = [] if dataset.transform else dataset.table.columns
    published = {column.name for column in one.table.columns}
    fields = {}
    for column in declared:
        made = one.masked or column.derived is not None
        how = lineage.Transformation("DIRECT", "TRANSFORMATION" if made else "IDENTITY", masking=one.masked)
        names = _source_columns(dataset.table, column)
        read = [lineage.InputField(*_dataset_name(each.uri), name, [how]) for each in one.inputs for name in names]
        if read and column.name in published:
            fields[column.name] = lineage.Fields(read)
    return lineage.ColumnLineageDatasetFacet(fields, producer=PRODUCER)


def _source_columns(table: Table, column: Column) -> list[str]:
    """Returns the names of the columns in the objects; a derived column comes from longitude and latitude."""
    names = (table.longitude_column, table.latitude_column) if column.derived else (column.name,)
    return [found.source or found.name for found in map(table.column, filter(None, names))]


def _dataset_name(uri: str) -> tuple[str, str]:
    """Returns namespace and name by OpenLineage's convention: `s3://bucket` and the key, or `file` and the path."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", uri.removeprefix(f"{parts.scheme}://{parts.netloc}").lstrip("/")

"""OpenLineage events of runs. Of masked objects they state the address, never the content."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from openlineage.client import facet_v2
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.events.notice import read_release_uri
from kfm_pipelines.services import Services
from kfm_pipelines.state.revisions import ReleaseDescription
from kfm_pipelines.state.verdicts import passed_gates
from kfm_pipelines.state.wal import Entry, Outcome, Step, entries_of_run, fetched_inputs
from kfm_pipelines.stores import Layout

State = Literal["START", "COMPLETE", "FAIL", "ABORT"]
NAMESPACE = "kfm"
PRODUCER = "urn:kfm:kfm-pipelines"


@dataclass(frozen=True, slots=True)
class RunInput:
    uri: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput(ReleaseDescription):
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


def read_run_facts(services: Services, dataset: Dataset, run_id: str, state: State) -> RunFacts:
    at = datetime.now(UTC)
    if state == "START":
        return RunFacts(run_id, state, at)
    steps: dict[str, dict[Step, Entry]] = defaultdict(dict)
    for entry in entries_of_run(services.database, run_id):
        steps[entry.key][entry.step] = entry
    published = {key: of for key, of in steps.items() if Step.COMMIT in of and Step.PUBLISH in of}
    gates = passed_gates(services.database, {key: of[Step.PUBLISH].txn for key, of in published.items()})
    read = {one: None for of in steps.values() if Step.COMPUTE in of for one in _run_inputs(services, of)}
    failed = sum(any(entry.outcome is Outcome.FAILED for entry in of.values()) for of in steps.values())
    outputs = [_run_output(services, dataset, of, gates[key]) for key, of in published.items()]
    return RunFacts(run_id, state, at, tuple(read), tuple(outputs), failed)


def _run_output(services: Services, dataset: Dataset, of: Mapping[Step, Entry], gates: Mapping[str, bool]) -> RunOutput:
    release, policy = of[Step.PUBLISH].detail, policy_of(services, dataset)
    masks = not policy.is_open and _detail(of, Step.MASK).get("exemption") is None
    return RunOutput.from_values(
        release,
        location=f"{services.store.url}/{Layout(dataset.pipeline).processed_data(release['key'])}",
        table=published_table(dataset, policy) if masks else dataset.table,
        masked=masks,
        gates=gates,
        inputs=_run_inputs(services, of),
    )


def _run_inputs(services: Services, of: Mapping[Step, Entry]) -> tuple[RunInput, ...]:
    inputs = fetched_inputs(_detail(of, Step.BEGIN), _detail(of, Step.COMPUTE))
    return tuple(_run_input(services, one) for one in inputs)


def _run_input(services: Services, one: Mapping[str, Any]) -> RunInput:
    """Names an upstream's release as the run that published it did, so that the two are connected."""
    upstream = read_release_uri(one["uri"])
    if upstream is None:
        return RunInput(one["uri"], one["version"])
    pipeline, key = upstream
    return RunInput(f"{services.store.url}/{Layout(pipeline).processed_data(key)}", one["etag"])


def _detail(of: Mapping[Step, Entry], step: Step) -> Mapping[str, Any]:
    return of[step].detail if step in of else {}


def run_event(dataset: Dataset, facts: RunFacts) -> RunEvent:
    failure = facet_v2.error_message_run.ErrorMessageRunFacet(
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


def _job(dataset: Dataset) -> Job:
    owners = [facet_v2.ownership_job.Owner(name=owner, type="MAINTAINER") for owner in dataset.owners]
    return Job(
        NAMESPACE,
        dataset.dataset,
        facets={
            "jobType": facet_v2.job_type_job.JobTypeJobFacet("BATCH", "DAGSTER", "JOB", producer=PRODUCER),
            "documentation": facet_v2.documentation_job.DocumentationJobFacet(dataset.description, producer=PRODUCER),
            "ownership": facet_v2.ownership_job.OwnershipJobFacet(owners, producer=PRODUCER),
        },
    )


def _input(one: RunInput) -> InputDataset:
    facets: dict[str, Any] = {}
    if one.version:
        facets["version"] = facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet(one.version, producer=PRODUCER)
    return InputDataset(*_dataset_name(one.uri), facets=facets)


def _output(dataset: Dataset, one: RunOutput) -> OutputDataset:
    change = facet_v2.lifecycle_state_change_dataset.LifecycleStateChange
    changed = change.CREATE if one.revision == 1 else change.OVERWRITE
    version = f"{one.revision}-{one.content_hash[:16]}"
    assertions: Any = facet_v2.data_quality_assertions_dataset
    judged = [assertions.Assertion("gate", passed, severity="error", name=gate) for gate, passed in one.gates.items()]
    fields = [
        facet_v2.schema_dataset.SchemaDatasetFacetFields(
            name=column.name, type=column.type, description=column.description, ordinal_position=place
        )
        for place, column in enumerate(one.table.columns, 1)
    ]
    return OutputDataset(
        *_dataset_name(one.location),
        facets={
            "schema": facet_v2.schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER),
            "columnLineage": _column_lineage(dataset, one),
            "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet(version, producer=PRODUCER),
            "lifecycleStateChange": facet_v2.lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                changed, producer=PRODUCER
            ),
            # The specification requires column metrics; ours are empty, because they would reveal values.
            "dataQualityMetrics": facet_v2.data_quality_metrics_dataset.DataQualityMetricsDatasetFacet(
                columnMetrics={}, rowCount=one.rows, bytes=one.bytes, fileCount=1, producer=PRODUCER
            ),
            # The specification has assertions on inputs, but our gates judge outputs.
            "dataQualityAssertions": assertions.DataQualityAssertionsDatasetFacet(judged, producer=PRODUCER),
        },
        outputFacets={
            "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=one.rows, size=one.bytes, fileCount=1, producer=PRODUCER
            )
        },
    )


def _column_lineage(dataset: Dataset, one: RunOutput) -> facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet:
    """Maps published columns to columns of the inputs; those that the policy or a transform adds have no source."""
    lineage, table = facet_v2.column_lineage_dataset, dataset.table
    declared = [] if dataset.transform else table.columns
    published = {column.name for column in one.table.columns}
    fields = {}
    for column in declared:
        made = one.masked or column.derived is not None
        how = lineage.Transformation("DIRECT", "TRANSFORMATION" if made else "IDENTITY", masking=one.masked)
        sources = (table.longitude_column, table.latitude_column) if column.derived else (column.name,)
        names = [found.source or found.name for found in map(table.column, filter(None, sources))]
        read = [lineage.InputField(*_dataset_name(each.uri), name, [how]) for each in one.inputs for name in names]
        if read and column.name in published:
            fields[column.name] = lineage.Fields(read)
    return lineage.ColumnLineageDatasetFacet(fields, producer=PRODUCER)


def _dataset_name(uri: str) -> tuple[str, str]:
    """Returns namespace and name by OpenLineage's convention: `s3://bucket` and the key, or `file` and the path."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", uri.removeprefix(f"{parts.scheme}://{parts.netloc}").lstrip("/")

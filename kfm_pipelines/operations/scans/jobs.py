"""Scans of what is published, as jobs: every night, every week, and whenever somebody starts one in the UI.

A scan that finds an error ends its run red, after everything has been written down: people look at red runs.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.gates.verdict import WORST_FIRST
from kfm_pipelines.operations.scans.extents import recompute_extent
from kfm_pipelines.operations.scans.nightly import MAX_KEYS_PER_SCAN, ScanResult, nightly_scan
from kfm_pipelines.operations.scans.weekly import DEFAULT_SCOPE, ScanScope, deep_scan
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import DatasetSelection, build_schedule
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.logs.lines import format_traceback

MAX_FINDINGS_DISPLAYED = 50


class QaScanConfig(DatasetSelection):
    full: bool = Field(default=False, description="Every published key counts as new since the last scan.")
    keys: int = Field(
        default=MAX_KEYS_PER_SCAN,
        ge=1,
        description="So many keys of a dataset: new ones, then those not seen for longest.",
    )


class DeepScanConfig(DatasetSelection):
    days: int = Field(default=DEFAULT_SCOPE.days, ge=1, description="How far back from the newest published window.")
    rows: int = Field(
        default=DEFAULT_SCOPE.rows, ge=1, description="At most so many rows of a dataset, the newest keys first."
    )


@dg.op(description="Whether what is published is still what was published, and would still pass its gates.")
def scan_published(context: dg.OpExecutionContext, config: QaScanConfig, services: ServicesResource) -> None:
    def scan(opened: Services, dataset: Dataset) -> ScanResult:
        return nightly_scan(opened, dataset, context.run_id, full=config.full, limit=config.keys)

    _scan_all(context, services.open(), config.dataset, scan)


@dg.op(description="The suites of each dataset over many published keys at once; writes the Data Docs.")
def scan_deeply(context: dg.OpExecutionContext, config: DeepScanConfig, services: ServicesResource) -> None:
    def scan(opened: Services, dataset: Dataset) -> ScanResult:
        return deep_scan(opened, dataset, context.run_id, ScanScope(config.days, config.rows))

    _scan_all(context, services.open(), config.dataset, scan)


@dg.op(description="Whether each collection says where and when its Items are; one that does not is written anew.")
def recompute_extents(context: dg.OpExecutionContext, config: DatasetSelection, services: ServicesResource) -> None:
    def scan(opened: Services, dataset: Dataset) -> ScanResult:
        return recompute_extent(opened, dataset, context.run_id)

    _scan_all(context, services.open(), config.dataset, scan)


@dg.job(name="kfm_qa_scan", description="Looks at what is published and writes down what is wrong; changes nothing.")
def qa_scan_job() -> None:
    scan_published()


@dg.job(name="kfm_deep_scan", description="Judges the Great Expectations suites over published data.")
def deep_scan_job() -> None:
    scan_deeply()


@dg.job(name="kfm_recompute_extents", description="Recomputes the extent of each collection from its Items.")
def extents_job() -> None:
    recompute_extents()


scan_jobs = (qa_scan_job, deep_scan_job, extents_job)
scan_schedules = (
    build_schedule("kfm_qa_scan_nightly", qa_scan_job, "0 2 * * *"),
    build_schedule("kfm_deep_scan_weekly", deep_scan_job, "0 4 * * 0"),
    build_schedule("kfm_recompute_extents_daily", extents_job, "0 5 * * *"),
)


def _scan_all(
    context: dg.OpExecutionContext, services: Services, name: str, scan: Callable[[Services, Dataset], ScanResult]
) -> None:
    """One dataset after the other; what cannot be scanned is told at the end, after the others."""
    chosen = [services.datasets[name]] if name else list(services.datasets.values())
    scanned: list[ScanResult] = []
    problems: list[str] = []
    for dataset in chosen:
        try:
            scanned.append(scan(services, dataset))
            context.log.info(str(scanned[-1]))
        except KfmError as error:
            problems.append(f"{dataset.dataset}: {error}")
        except Exception as failure:  # noqa: BLE001 - what it says may quote the data
            context.log.error("the scan of %s failed\n%s", dataset.dataset, format_traceback(failure))
            problems.append(f"{dataset.dataset}: {type(failure).__name__}, see the log of the run")
    metadata = _metadata(scanned)
    wrong = [str(one) for one in scanned if one.errors]
    if wrong or problems:
        raise dg.Failure("\n".join([*wrong, *problems]), metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


def _metadata(results: Sequence[ScanResult]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "keys": sum(one.keys for one in results),
        "keys_left": sum(one.keys_left for one in results),
        "keys_left_out": sum(one.keys_left_out for one in results),
        "errors": sum(one.errors for one in results),
        "warnings": sum(one.warnings for one in results),
    }
    metadata |= {f"data_docs/{one.dataset}": dg.MetadataValue.url(one.data_docs) for one in results if one.data_docs}
    if records := list(_finding_records(results)):
        metadata["findings"] = dg.MetadataValue.table(records[:MAX_FINDINGS_DISPLAYED])
    return metadata


def _finding_records(results: Iterable[ScanResult]) -> Iterable[dg.TableRecord]:
    for one in results:
        for found in sorted(one.findings, key=lambda found: WORST_FIRST.index(found.finding.severity)):
            finding = found.finding
            yield dg.TableRecord(
                {
                    "dataset": one.dataset,
                    "key": found.key or "",
                    "gate": found.gate,
                    "rule": finding.rule,
                    "severity": finding.severity.value,
                    "subject": finding.subject,
                    "expected": finding.expected,
                    "found": finding.measured,
                    "fix": found.fix,
                }
            )

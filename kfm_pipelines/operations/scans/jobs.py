"""The scans as Dagster jobs with their schedules. A scan that finds an error fails its run after recording it."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.gates.verdict import WORST_FIRST
from kfm_pipelines.operations.scans.extents import recompute_extent
from kfm_pipelines.operations.scans.nightly import MAX_KEYS_PER_SCAN, nightly_scan
from kfm_pipelines.operations.scans.result import ScanResult
from kfm_pipelines.operations.scans.weekly import MAX_DAYS, MAX_ROWS, deep_scan
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import DatasetSelection, build_job, build_schedule
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.logs.lines import format_traceback

MAX_FINDINGS_DISPLAYED = 50


class QaScanConfig(DatasetSelection):
    full: bool = Field(default=False, description="Treat every published key as new since the last scan.")
    keys: int = Field(
        default=MAX_KEYS_PER_SCAN, ge=1, description="Maximum keys per dataset: new ones, then the longest unscanned."
    )


class DeepScanConfig(DatasetSelection):
    days: int = Field(default=MAX_DAYS, ge=1, description="How far back from the newest published window.")
    rows: int = Field(default=MAX_ROWS, ge=1, description="Maximum rows per dataset, newest keys first.")


@dg.op(description="Checks that published data is unchanged and would still pass its gates.")
def scan_published(context: dg.OpExecutionContext, config: QaScanConfig, services: ServicesResource) -> None:
    scan = partial(nightly_scan, run_id=context.run_id, full=config.full, limit=config.keys)
    _scan_all(context, services.open(), config.dataset, scan)


@dg.op(description="Runs the suites of each dataset over many published keys at once and writes the Data Docs.")
def scan_deeply(context: dg.OpExecutionContext, config: DeepScanConfig, services: ServicesResource) -> None:
    scan = partial(deep_scan, run_id=context.run_id, days=config.days, rows=config.rows)
    _scan_all(context, services.open(), config.dataset, scan)


@dg.op(description="Compares the extent of each collection with its Items and rewrites collections that differ.")
def recompute_extents(context: dg.OpExecutionContext, config: DatasetSelection, services: ServicesResource) -> None:
    _scan_all(context, services.open(), config.dataset, partial(recompute_extent, run_id=context.run_id))


qa_scan_job = build_job(scan_published, "kfm_qa_scan", "Scans what is published and records findings; changes nothing.")
deep_scan_job = build_job(scan_deeply, "kfm_deep_scan", "Runs the Great Expectations suites over published data.")
extents_job = build_job(
    recompute_extents, "kfm_recompute_extents", "Recomputes the extent of each collection from its Items."
)
scan_jobs = (qa_scan_job, deep_scan_job, extents_job)
scan_schedules = (
    build_schedule("kfm_qa_scan_nightly", qa_scan_job, "0 2 * * *"),
    build_schedule("kfm_deep_scan_weekly", deep_scan_job, "0 4 * * 0"),
    build_schedule("kfm_recompute_extents_daily", extents_job, "0 5 * * *"),
)


def _scan_all(
    context: dg.OpExecutionContext, services: Services, name: str, scan: Callable[[Services, Dataset], ScanResult]
) -> None:
    """Scans one dataset after the other; a failure is reported after the remaining datasets."""
    chosen = [services.datasets[name]] if name else list(services.datasets.values())
    results: list[ScanResult] = []
    problems: list[str] = []
    for dataset in chosen:
        try:
            results.append(scan(services, dataset))
            context.log.info(str(results[-1]))
        except KfmError as error:
            problems.append(f"{dataset.dataset}: {error}")
        except Exception as failure:  # noqa: BLE001 - its message may quote the data
            context.log.error("the scan of %s failed\n%s", dataset.dataset, format_traceback(failure))
            problems.append(f"{dataset.dataset}: {type(failure).__name__}, see the log of the run")
    metadata = _metadata(results)
    wrong = [str(one) for one in results if one.errors]
    if wrong or problems:
        raise dg.Failure("\n".join([*wrong, *problems]), metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


def _metadata(results: Sequence[ScanResult]) -> dict[str, Any]:
    counts = ("keys", "keys_left", "keys_left_out", "errors", "warnings")
    metadata: dict[str, Any] = {name: sum(getattr(one, name) for one in results) for name in counts}
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

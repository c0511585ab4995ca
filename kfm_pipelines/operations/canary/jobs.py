"""The sixth asset, of datasets with a candidate: compares chosen keys of the run. It never fails a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.operations.canary.evaluate import CanaryRun
from kfm_pipelines.operations.canary.tables import KeyComparison
from kfm_pipelines.orchestration.names import asset_key
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.stages.assets.assets import stage_asset
from kfm_pipelines.text import truncate_line

CHECK_NAME = "canary_agrees"
MAX_ROWS = 50
MAX_CELL_LENGTH = 500


def canary_assets(dataset: Dataset) -> list[dg.AssetsDefinition]:
    if dataset.canary is None:
        return []
    version = dataset.canary.transform_version
    check = dg.AssetCheckSpec(
        CHECK_NAME,
        asset=asset_key(dataset, "canary"),
        blocking=False,
        description=f"What the candidate {version} makes is within its tolerance of what is published. Only a warning.",
    )

    @stage_asset(
        dataset,
        "canary",
        f"What the candidate {version} makes of chosen keys, next to what is published of them. Restricted; never "
        "published.",
        kinds={"parquet"},
        deps=[asset_key(dataset, "publish")],
        check_specs=[check],
    )
    def canary(context: dg.AssetExecutionContext, services: ServicesResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        run = CanaryRun(services.open(), dataset, context.run.run_id)
        compared = run.compare(context.partition_keys)
        for key, note in {**run.skipped, **run.failed}.items():
            context.log.info("%s was not compared: %s", key, truncate_line(note, MAX_CELL_LENGTH))
        return dg.MaterializeResult(
            metadata={"compared": len(compared), "good": sum(one.good for one in compared)},
            check_results=[_check_result(compared, run)],
        )

    return [canary]


def _check_result(comparisons: Sequence[KeyComparison], run: CanaryRun) -> dg.AssetCheckResult:
    bad = sum(not one.good for one in comparisons)
    records = [
        *(comparison_record(one) for one in sorted(comparisons, key=lambda one: one.good)),
        *(_table_record(key, "not compared", [note]) for key, note in run.failed.items()),
    ]
    metadata: dict[str, Any] = {"compared": len(comparisons), "good": len(comparisons) - bad}
    if records:
        metadata["comparisons"] = dg.MetadataValue.table(records[:MAX_ROWS])
    failed = f"; {len(run.failed)} chosen keys could not be compared" if run.failed else ""
    return dg.AssetCheckResult(
        check_name=CHECK_NAME,
        passed=not bad and not run.failed,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{bad} of {len(comparisons)} compared keys are not good{failed}",
        metadata=metadata,
    )


def comparison_record(comparison: KeyComparison) -> dg.TableRecord:
    report = comparison.report
    if "rows" not in report:
        return _table_record(comparison.key, "no", report["faults"])
    return _table_record(
        comparison.key,
        "yes" if comparison.good else "no",
        report["faults"],
        rows=_format_rows(report),
        columns=", ".join(f"{change['column']} {change['what']}".strip() for change in report["columns"]) or "the same",
        statistics=_format_statistics(report),
        bytes=_format_size(report),
    )


def _table_record(key: str, good: str, faults: Sequence[str], **cells: str) -> dg.TableRecord:
    blank = dict.fromkeys(("rows", "columns", "statistics", "bytes"), "")
    record = {"key": key, "good": good, **blank, **cells, "what is not good": "; ".join(faults)}
    return dg.TableRecord({name: truncate_line(value, MAX_CELL_LENGTH) for name, value in record.items()})


def _format_rows(report: Mapping[str, Any]) -> str:
    rows = report["rows"]
    if "within" in rows:
        return _format_within(rows["within"])
    counts = f"{report['published_rows']} → {report['candidate_rows']}"
    different = rows["added"] + rows["removed"] + rows["changed"]
    return f"{counts}, {different} differ" if different else counts


def _format_statistics(report: Mapping[str, Any]) -> str:
    if "statistics_within" in report:
        return _format_within(report["statistics_within"])
    worst = report["statistics"][:1]
    return "".join(f"{one['column']} {one['measure']} {one['percent']:.3g} %" for one in worst) or "the same"


def _format_size(report: Mapping[str, Any]) -> str:
    if report["identical"]:
        return "identical"
    return f"{report['published_bytes']} → {report['candidate_bytes']}" if "published_bytes" in report else "different"


def _format_within(is_within: bool) -> str:
    return "within tolerance" if is_within else "beyond tolerance"

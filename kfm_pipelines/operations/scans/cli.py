"""`kfm qa`: scans what is published, and lists what gates and scans found."""

from dataclasses import asdict
from typing import Any
from uuid import uuid4

import click

from kfm_pipelines.console.options import StorableText, default_option
from kfm_pipelines.console.output import console, display_finding, format_time, json_option, progress, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.gates.remedies import remedy_of
from kfm_pipelines.operations.scans import tables
from kfm_pipelines.operations.scans.nightly import MAX_KEYS_PER_SCAN, nightly_scan
from kfm_pipelines.operations.scans.result import ScanResult
from kfm_pipelines.operations.scans.weekly import deep_scan
from kfm_pipelines.services import Services
from kfm_pipelines.state.verdicts import latest_findings

DEFAULT_FINDINGS_LIMIT = 200


@click.group()
def qa() -> None:
    """Scan published data and list findings."""


@qa.command()
@click.argument("dataset", required=False, type=StorableText())
@click.option("--deep", is_flag=True, help="Run the Great Expectations suites and write Data Docs.")
@click.option("--full", is_flag=True, help="Treat every published key as new since the last scan.")
@default_option(
    "--keys",
    type=click.IntRange(1),
    default=MAX_KEYS_PER_SCAN,
    help="Maximum keys per dataset: new ones, then the longest unscanned.",
)
@json_option
def scan(dataset: str | None, deep: bool, full: bool, keys: int, as_json: bool) -> None:
    """Scan what is published of one DATASET, or of all, as the scheduled scans do.

    Exits with 1 when it finds an error. Findings are kept; see `kfm qa findings`.
    """
    if deep and full:
        raise click.UsageError("--full applies to the nightly scan only; --deep always takes the newest keys")
    run_id = f"cli-{uuid4()}"
    with open_services() as services:
        chosen = [services.datasets[dataset]] if dataset else list(services.datasets.values())
        limit = None if deep else keys
        results = [_run_scan(services, one, run_id, full=full, limit=limit, quiet=as_json) for one in chosen]
    document = {"run": run_id, "datasets": [_result_document(one) for one in results]}
    failed = any(one.errors for one in results)
    respond(document, lambda: _display_results(results), as_json=as_json, ok=not failed)


@qa.command()
@click.argument("dataset", required=False, type=StorableText())
@click.option("--key", type=StorableText(), help="Only this key.")
@click.option("--run", "run_id", type=StorableText(), help="Only this run.")
@click.option("--severity", type=click.Choice(["info", "warn", "error"]), help="Only this severity.")
@default_option(
    "--limit", type=click.IntRange(1, 10_000), default=DEFAULT_FINDINGS_LIMIT, help="Maximum number, newest first."
)
@json_option
def findings(
    dataset: str | None, key: str | None, run_id: str | None, severity: str | None, limit: int, as_json: bool
) -> None:
    """List what gates and scans found, newest first, for one DATASET, one key, or all."""
    if key is not None:
        CanonicalKey.parse(key)
    with open_services() as services:
        if dataset is not None:
            dataset = services.datasets[dataset].dataset
        found = latest_findings(
            services.database, dataset=dataset, key=key, run_id=run_id, severity=severity, limit=limit
        )
    rows = [{**asdict(one), "fix": remedy_of(one.gate, one.rule)} for one in found]
    respond({"findings": rows}, lambda: _display_rows(rows), as_json=as_json)


def _run_scan(
    services: Services, dataset: Dataset, run_id: str, *, full: bool, limit: int | None, quiet: bool
) -> ScanResult:
    """Runs the nightly scan, or the deep one when there is no limit."""
    if limit is None:
        with progress(f"{dataset.dataset}: keys read", None, quiet=quiet) as on_progress:
            return deep_scan(services, dataset, run_id, on_progress=on_progress)
    due, _ = tables.select_due_keys(services.database, dataset.dataset, full=full, limit=limit)
    with progress(f"{dataset.dataset}: keys scanned", len(due), quiet=quiet) as on_progress:
        return nightly_scan(services, dataset, run_id, full=full, limit=limit, on_progress=on_progress)


def _result_document(result: ScanResult) -> dict[str, Any]:
    return {
        "dataset": result.dataset,
        "kind": result.kind,
        "keys": result.keys,
        "left": result.keys_left,
        "left_out": result.keys_left_out,
        "errors": result.errors,
        "warnings": result.warnings,
        "note": result.note,
        "data_docs": result.data_docs,
        "findings": _finding_rows(result),
    }


def _display_results(results: list[ScanResult]) -> None:
    for result in results:
        console.print(str(result), style="bold" if result.errors else "")
        for row in _finding_rows(result):
            display_finding(row, f"{row['key']}, " if row["key"] else "")
        if result.data_docs:
            console.print(f"  Data Docs: {result.data_docs}")


def _display_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        display_finding(row, f"{format_time(row['at'])}, {row['key'] or row['dataset']}, ")
    console.print(f"{len(rows)} {'finding' if len(rows) == 1 else 'findings'}")


def _finding_rows(result: ScanResult) -> list[dict[str, Any]]:
    return [
        {"key": found.key, "gate": found.gate, **asdict(found.finding), "fix": found.fix} for found in result.findings
    ]

"""The result of `kfm datasets try`, as a document and for people."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kfm_pipelines.console.output import console, display_finding, format_count
from kfm_pipelines.gates.remedies import remedy_of
from kfm_pipelines.operations.datasets.trial import Trial
from kfm_pipelines.text import make_printable

MAX_FINDINGS = 5


def trial_document(trial: Trial, written: Sequence[Path]) -> dict[str, Any]:
    table = trial.table
    return {
        "ok": trial.is_green,
        "dataset": trial.dataset.dataset,
        "key": trial.key,
        "policy": trial.policy.name,
        "objects": trial.objects,
        "rows": None if table is None else table.num_rows,
        "columns": [] if table is None else [{"name": one.name, "type": str(one.type)} for one in table.schema],
        "extent": trial.bbox,
        "files": [{"name": one.file_name, "bytes": len(one.data)} for one in trial.attachments.files],
        "left_out": dict(trial.left_out),
        "measures": dict(trial.measures),
        "refusals": list(trial.refusals),
        "gates": [
            {"gate": one.gate, "passed": one.passed, "findings": [asdict(finding) for finding in one.findings]}
            for one in trial.verdicts
        ],
        "item": json.loads(trial.item) if trial.item else None,
        "written": [str(path) for path in written],
    }


def display_trial(document: dict[str, Any], out: Path | None) -> None:
    console.print(document["key"], style="bold")
    for line in _content_lines(document):
        console.print(make_printable(f"  {line}"))
    for gate in document["gates"]:
        _display_gate(gate)
    for line in _outcome_lines(document):
        console.print(make_printable(f"  {line}"))
    if out is not None and not document["written"]:
        console.print(f"  written    nothing to {out}, because nothing would be published")
    console.print("would be published" if document["ok"] else "would NOT be published")


def _content_lines(document: dict[str, Any]) -> Iterator[str]:
    if document["rows"] is not None:
        rows, columns = format_count(document["rows"], "row"), format_count(len(document["columns"]), "column")
        yield f"from {format_count(document['objects'], 'object')}: {rows}, {columns}"
        yield from (f"  {column['name']}: {column['type']}" for column in document["columns"])
    yield from (f"left out   {count} {reason}" for reason, count in document["left_out"].items())
    if document["extent"]:
        yield "extent     " + ", ".join(f"{value:.1f}" for value in document["extent"])
    yield from (f"file       {one['name']}, {one['bytes']} bytes" for one in document["files"])
    yield from (f"masked     {name}: {value}" for name, value in document["measures"].items())


def _display_gate(gate: dict[str, Any]) -> None:
    console.print(f"  {gate['gate']:<10} {'green' if gate['passed'] else 'RED'}")
    for finding in gate["findings"][:MAX_FINDINGS]:
        display_finding({**finding, "gate": gate["gate"], "fix": remedy_of(gate["gate"], finding["rule"])}, "  ")
    if len(gate["findings"]) > MAX_FINDINGS:
        console.print(f"    and {len(gate['findings']) - MAX_FINDINGS} more; --json lists them all")


def _outcome_lines(document: dict[str, Any]) -> Iterator[str]:
    yield from (f"refused    {refusal}" for refusal in document["refusals"])
    if item := document["item"]:
        yield f"Item       {item['id']}: {', '.join(item['assets'])}"
    yield from (f"written    {path}" for path in document["written"])

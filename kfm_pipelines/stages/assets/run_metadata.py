"""What a run shows in Dagster: check results, metadata of each key, and the failure message."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates import Finding
from kfm_pipelines.gates.verdict import WORST_FIRST
from kfm_pipelines.orchestration.dagster_internals import attach_partition_metadata
from kfm_pipelines.orchestration.names import column_schema, image_metadata, location_metadata
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.previews import DETAILED_KEYS
from kfm_pipelines.stages.validate.table_gates import KeyVerdict
from kfm_pipelines.state.wal import Entry, Outcome, last_entries_of_run
from kfm_pipelines.stores import Layout
from kfm_pipelines.text import truncate_line

MAX_LISTED = 50
MAX_NOTE_LENGTH = 1000


def log_notes(context: dg.AssetExecutionContext, batch: Batch) -> None:
    for key, note in batch.notes.items():
        context.log.info("%s: %s", key, truncate_line(note.removeprefix(f"{key}: "), MAX_NOTE_LENGTH))


def stop_if_all_failed(context: dg.AssetExecutionContext, batch: Batch) -> None:
    """Fails the stage in which the last key dropped out, unless some keys are settled, which the last stage reports."""
    keys = context.partition_keys
    if batch.held_claims(keys):
        return
    entries = last_entries_of_run(batch.database, context.run.run_id, keys)
    if any(_is_settled(entries.get(key)) for key in keys):
        return
    raise dg.Failure(_summary(keys, entries, batch.notes), allow_retries=False)


def check_result(gate: str, key_verdicts: Sequence[KeyVerdict]) -> dg.AssetCheckResult:
    """Returns one result for all keys of the run, with the findings as a table."""
    verdicts = [one for one in key_verdicts if one.verdict.gate == gate]
    red = [one for one in verdicts if not one.verdict.passed]
    findings = _rank_findings(verdicts)
    metadata: dict[str, Any] = {"keys_judged": len(verdicts), "keys_red": len(red)}
    if findings:
        metadata["findings"] = dg.MetadataValue.table([_finding_record(*found) for found in findings[:MAX_LISTED]])
        metadata["findings_in_all"] = len(findings)
    return dg.AssetCheckResult(
        check_name=gate,
        passed=not red,
        severity=dg.AssetCheckSeverity.ERROR,
        description=_describe_counts(len(red), len(verdicts)),
        metadata=metadata,
    )


def _describe_counts(red: int, total: int) -> str:
    if not total:
        return "no key reached this gate"
    if red:
        return f"{red} of {total} keys are red" if total > 1 else "1 key is red"
    return f"{total} keys are green" if total > 1 else "1 key is green"


def _rank_findings(key_verdicts: Sequence[KeyVerdict]) -> list[tuple[str, Finding]]:
    """Puts the worst finding of each key first, so that no key hides another."""
    firsts: list[tuple[str, Finding]] = []
    others: list[tuple[str, Finding]] = []
    for one in key_verdicts:
        ordered = sorted(one.verdict.findings, key=lambda finding: WORST_FIRST.index(finding.severity))
        firsts += [(one.key, finding) for finding in ordered[:1]]
        others += [(one.key, finding) for finding in ordered[1:]]
    return [*sorted(firsts, key=_severity_rank), *sorted(others, key=_severity_rank)]


def _severity_rank(finding: tuple[str, Finding]) -> tuple[int, str]:
    return WORST_FIRST.index(finding[1].severity), finding[0]


def _finding_record(key: str, finding: Finding) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "key": key,
            "rule": finding.rule,
            "severity": finding.severity.value,
            "subject": finding.subject,
            "expected": finding.expected,
            "found": finding.measured,
            "sample": finding.sample,
        }
    )


def attach_care_metadata(context: dg.AssetExecutionContext, batch: Batch, key_verdicts: Sequence[KeyVerdict]) -> None:
    """Attaches masking numbers, which Dagster plots over time, and the map that readers will see to masked keys."""
    keys = list(dict.fromkeys(one.key for one in key_verdicts if one.verdict.passed and one.verdict.gate == "care"))
    metadata: dict[str, dict[str, Any]] = {}
    for key, preview in batch.care_previews(keys[-DETAILED_KEYS:]).items():
        metadata[key] = {f"care/{name}": value for name, value in preview.numbers.items()}
        metadata[key]["care/policy"] = preview.policy
        metadata[key]["care/map"] = image_metadata(preview.png, "what readers will see")
    attach_partition_metadata(context, metadata)


def finish_run(
    context: dg.AssetExecutionContext, batch: Batch, dataset: Dataset, published: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Attaches metadata to each settled key and returns whether all keys are materialized. If a key is still open, the
    others are recorded as materialized and the run fails. A key awaiting review is neither published nor failed."""
    keys = context.partition_keys
    entries = last_entries_of_run(batch.database, context.run.run_id, keys)
    settled = [key for key in keys if _is_settled(entries.get(key))]
    unsettled = [key for key in keys if key not in settled and key not in batch.awaiting_review]
    metadata = {key: _key_metadata(batch, dataset, key, entries[key], published.get(key)) for key in settled}
    for key in [key for key in settled if key in published][-DETAILED_KEYS:]:
        metadata[key]["dagster/column_schema"] = column_schema(batch.previews.table(key))
    for key, png in batch.previews.maps().items():
        if key in metadata:
            metadata[key]["map"] = image_metadata(png, "where it is")
    if len(settled) == len(keys):
        attach_partition_metadata(context, metadata)
        return True
    for key, values in metadata.items():
        context.log_event(dg.AssetMaterialization(context.asset_key, partition=key, metadata=values))
    if unsettled:
        raise dg.Failure(_summary(unsettled, entries, batch.notes), allow_retries=False)
    return False


def _key_metadata(
    batch: Batch, dataset: Dataset, key: str, entry: Entry, release: Mapping[str, Any] | None
) -> dict[str, Any]:
    layout = Layout(dataset.pipeline)
    metadata: dict[str, Any] = {"outcome": entry.outcome.value if entry.outcome else "OPEN"}
    metadata["trace"] = batch.trace_of(key)  # for `kfm trace`
    if "revision" in entry.detail:
        metadata["revision"] = entry.detail["revision"]
    if "reason" in entry.detail:
        metadata["reason"] = entry.detail["reason"]
    if release:
        metadata |= {
            "dagster/row_count": release["rows"],
            "bytes": release["bytes"],
            "item": location_metadata(batch.previews.store_url, layout.item(key)),
            "data": location_metadata(batch.previews.store_url, layout.processed_data(key)),
            "sha256": release["content_hash"],
        }
    return metadata


def _is_settled(entry: Entry | None) -> bool:
    return entry is not None and entry.outcome in (Outcome.APPLIED, Outcome.SKIPPED)


def _summary(keys: Iterable[str], entries: Mapping[str, Entry], notes: Mapping[str, str]) -> str:
    lines = []
    for key in keys:
        entry = entries.get(key)
        if not _is_settled(entry):
            recorded = entry.detail.get("reason") if entry else None
            reason = str(recorded or notes.get(key) or "was not taken by this run; run the whole group of assets")
            lines.append(f"{key}: {reason.removeprefix(f'{key}: ')}")
    more = f"\n… and {len(lines) - MAX_LISTED} more" if len(lines) > MAX_LISTED else ""
    count = "1 key was" if len(lines) == 1 else f"{len(lines)} keys were"
    return f"{count} not published:\n" + "\n".join(lines[:MAX_LISTED]) + more

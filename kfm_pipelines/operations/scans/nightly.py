"""The nightly scan: whether what is published is still what was published, and would still pass its gates.

It looks at one key at a time and writes down what it finds. It mends nothing and takes nothing back. What it found the
last time as well counts again, but is not written down again.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable, KfmError
from kfm_pipelines.gates import Finding, Severity, TableSubject, Verdict, judge_quality, judge_schema
from kfm_pipelines.gates.published_release import PublishedSubject, judge_published_bytes
from kfm_pipelines.gates.remedies import remedy_of
from kfm_pipelines.gates.verdict import error
from kfm_pipelines.operations.scans import tables
from kfm_pipelines.operations.scans.tables import Scan, ScanKind
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.read_back import read_published, table_as_published
from kfm_pipelines.state import verdicts as findings
from kfm_pipelines.state.database import Connection
from kfm_pipelines.state.keys import window_of_key
from kfm_pipelines.state.revisions import Revision, current_revision, lock_current_revision, mark_collection_changed
from kfm_pipelines.state.transactions import has_publish_intent
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.configure import error_fields

log = logging.getLogger(__name__)

MAX_KEYS_PER_SCAN = 5000

ProgressCallback = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ScanFinding:
    """One finding of a scan; about the dataset as a whole when there is no key."""

    key: str | None
    gate: str
    finding: Finding

    @property
    def fix(self) -> str:
        return remedy_of(self.gate, self.finding.rule)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What one scan of one dataset came to."""

    dataset: str
    kind: ScanKind
    keys: int = 0
    keys_left: int = 0  # keys that a bounded scan did not come to
    keys_left_out: int = 0  # keys that were read, and then not judged with the others
    findings: tuple[ScanFinding, ...] = ()
    note: str = ""  # why nothing was looked at
    data_docs: str = ""  # where the Data Docs about it are

    @property
    def errors(self) -> int:
        return self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Severity.WARN)

    def __str__(self) -> str:
        said = self.note or f"{self.errors} errors and {self.warnings} warnings in {self.keys} keys"
        # The weekly scan begins with the newest keys each time, so it never comes to the others.
        why = "older ones not reached" if self.kind is ScanKind.DEEP else "left for the next time"
        left = f", {self.keys_left} {why}" if self.keys_left else ""
        left_out = f", {self.keys_left_out} left out" if self.keys_left_out else ""
        return f"{self.dataset}: {said}{left}{left_out}"

    def _count(self, severity: Severity) -> int:
        return sum(found.finding.severity is severity for found in self.findings)


def nightly_scan(
    services: Services,
    dataset: Dataset,
    run_id: str,
    *,
    full: bool = False,
    limit: int = MAX_KEYS_PER_SCAN,
    on_progress: ProgressCallback = lambda _: None,
) -> ScanResult:
    """Look at every key that was published since it was looked at last, then at those not looked at for longest, up to
    so many. With `full` all are alike."""
    with tables.scan_lock(services.database, ScanKind.NIGHTLY, dataset.dataset) as started_at:
        if started_at is None:
            return already_running_result(dataset, ScanKind.NIGHTLY)
        due = tables.select_due_keys(services.database, dataset.dataset, full=full, limit=limit)
        found: list[ScanFinding] = []
        put_off = 0
        for number, key in enumerate(due.keys, start=1):
            verdicts = scan_key(services, dataset, run_id, key)
            put_off += verdicts is None
            found += scan_findings(key, verdicts or ())
            on_progress(number)
        keys = len(due.keys) - put_off
        scanned = ScanResult(dataset.dataset, ScanKind.NIGHTLY, keys, due.left + put_off, findings=tuple(found))
        with services.database.transaction() as connection:
            record_result(connection, scanned, run_id, started_at, {"full": full})
            if due.keys:
                mark_collection_changed(connection, dataset.dataset)  # the collection says what scans find
    for problem in refresh_stale_collections(services):
        log.warning("%s; a later run or tick writes it", problem)
    return scanned


def scan_key(services: Services, dataset: Dataset, run_id: str, key: str) -> Sequence[Verdict] | None:
    """Judge what is published of the key and write it down; None when it is just being published, and so for the next
    time. What looks wrong is looked at again: it may have been published while it was read."""
    revision = current_revision(services.database, key)
    verdicts = _judge_revision(services, dataset, revision) if revision else ()
    if not all(verdict.passed for verdict in verdicts):
        with services.database.transaction() as connection:
            revision = lock_current_revision(connection, key)
        verdicts = _judge_revision(services, dataset, revision) if revision else ()
        if not all(verdict.passed for verdict in verdicts) and _is_being_published(services, key, revision):
            return None
    if revision is None:
        return None
    found = [(verdict.gate, [asdict(finding) for finding in verdict.findings]) for verdict in verdicts]
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    errors = sum(one.finding.severity is Severity.ERROR for one in scan_findings(key, verdicts))
    with services.database.transaction() as connection:
        if tables.record_scanned_key(connection, key, revision.revision, errors, digest):
            for gate, several in found:
                findings.record_findings(connection, run_id, dataset.dataset, key, None, gate, several)
    return verdicts


def scan_findings(key: str, verdicts: Iterable[Verdict]) -> list[ScanFinding]:
    return [ScanFinding(key, verdict.gate, finding) for verdict in verdicts for finding in verdict.findings]


def judge_published(subject: TableSubject) -> tuple[Verdict, ...]:
    """The gates over a table that is published already; suites of Great Expectations are for the weekly scan."""
    schema = judge_schema(subject)
    return (schema, judge_quality(subject)) if schema.passed else (schema,)


def already_running_result(dataset: Dataset, kind: ScanKind) -> ScanResult:
    return ScanResult(dataset.dataset, kind, note=f"another {kind} scan of {dataset.dataset} is under way")


def record_result(
    connection: Connection,
    result: ScanResult,
    run_id: str,
    started_at: datetime,
    detail: dict[str, Any],
) -> None:
    """That the scan ended, and what it came to."""
    tables.record_scan(
        connection,
        Scan(
            run_id=run_id,
            kind=result.kind,
            dataset=result.dataset,
            started_at=started_at,
            keys=result.keys,
            errors=result.errors,
            warnings=result.warnings,
            detail={"left": result.keys_left, "left_out": result.keys_left_out, **detail},
        ),
    )


def _is_being_published(services: Services, key: str, revision: Revision | None) -> bool:
    """Whether somebody is publishing the key, or has to finish doing so, or has just done it."""
    return has_publish_intent(services.database, key) or current_revision(services.database, key) != revision


def _judge_revision(services: Services, dataset: Dataset, revision: Revision) -> tuple[Verdict, ...]:
    subject = read_published(services.store, Layout(dataset.pipeline), revision)
    verdict = judge_published_bytes(subject)
    if not subject.matches_record:
        return (verdict,)  # the gates judged other bytes
    return (verdict, *_judge_table(services, dataset, subject))


def _judge_table(services: Services, dataset: Dataset, subject: PublishedSubject) -> tuple[Verdict, ...]:
    """A gate that cannot judge is red; the other keys are looked at all the same."""
    key = subject.recorded.key
    try:
        judged = _table_subject(services, dataset, subject)
        return judge_published(judged) if judged else ()
    except InputUnreadable:
        measured = "bytes that cannot be read"
    except KfmError:
        raise
    except Exception as failure:  # noqa: BLE001 - what it is may quote the data
        log.error("the gates failed over %s", key, extra={"idempotency_key": key, **error_fields(failure)})
        measured = f"{type(failure).__name__} in a gate"
    return (Verdict("published", (error("published-judged", "table", "a verdict of every gate", measured),)),)


def _table_subject(services: Services, dataset: Dataset, subject: PublishedSubject) -> TableSubject | None:
    """Without precedents: how much a table may differ from what came before was judged when it was published."""
    policy = policy_of(services, dataset)
    published = table_as_published(dataset, policy, subject.parsed_item)
    if published is None or subject.content is None:
        return None
    key = subject.recorded.key
    return TableSubject(
        dataset=dataset,
        published=published,
        table=read_parquet(subject.content, key),
        data=subject.content,
        content_hash=subject.recorded.content_hash,
        window=window_of_key(services.database, key),
        may_sample=policy.is_open,
    )

"""The nightly scan: whether what is published is still what was published, and would still pass its gates.

It looks at one key at a time and writes down what it finds. It mends nothing and takes nothing back.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import InputUnreadable, KfmError
from kfm_pipelines.gates import Finding, Severity, TableSubject, Verdict, judge_quality, judge_schema
from kfm_pipelines.gates.published import PublishedSubject, judge_published_bytes
from kfm_pipelines.gates.verdict import error
from kfm_pipelines.operations.inputs import window_of_key
from kfm_pipelines.operations.published import read_published, table_then
from kfm_pipelines.operations.traces import trace_of
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.parquet import read_parquet
from kfm_pipelines.state import findings, scans
from kfm_pipelines.state.revisions import Revision, current_revision, settled_revision
from kfm_pipelines.state.scans import Kind, Scan
from kfm_pipelines.state.transactions import publish_intent
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger(__name__)

KEYS_AT_ONCE = 5000

Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Found:
    """One finding of a scan; about the dataset as a whole when there is no key."""

    key: str | None
    gate: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Scanned:
    """What one scan of one dataset came to."""

    dataset: str
    kind: Kind
    keys: int = 0
    left: int = 0  # keys for the next time
    found: tuple[Found, ...] = ()
    note: str = ""  # why nothing was looked at
    pages: str = ""  # where the Data Docs about it are

    @property
    def errors(self) -> int:
        return self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Severity.WARN)

    def __str__(self) -> str:
        if self.note:
            return f"{self.dataset}: {self.note}"
        left = f", {self.left} left for the next time" if self.left else ""
        return f"{self.dataset}: {self.errors} errors and {self.warnings} warnings in {self.keys} keys{left}"

    def _count(self, severity: Severity) -> int:
        return sum(found.finding.severity is severity for found in self.found)


def nightly_scan(
    workshop: Workshop,
    dataset: Dataset,
    run_id: str,
    *,
    full: bool = False,
    limit: int = KEYS_AT_ONCE,
    tell: Tell = lambda _: None,
) -> Scanned:
    """Look at every key that was published since it was looked at last, or at all of them, up to so many."""
    with scans.scanning(workshop.database, Kind.NIGHTLY, dataset.dataset) as started_at:
        if started_at is None:
            return under_way(dataset, Kind.NIGHTLY)
        due = scans.due(workshop.database, dataset.dataset, full=full, limit=limit)
        found: list[Found] = []
        put_off = 0
        for number, key in enumerate(due.keys, start=1):
            verdicts = _look_at(workshop, dataset, run_id, key)
            put_off += verdicts is None
            found += _found(key, verdicts or ())
            tell(number)
        scanned = Scanned(dataset.dataset, Kind.NIGHTLY, len(due.keys) - put_off, due.left + put_off, tuple(found))
        with workshop.database.transaction() as connection:
            record(connection, scanned, run_id, started_at, {"full": full})
    return scanned


def judge_published(subject: TableSubject) -> tuple[Verdict, ...]:
    """The gates over a table that is published already; suites of Great Expectations are for the weekly scan."""
    schema = judge_schema(subject)
    return (schema, judge_quality(subject)) if schema.passed else (schema,)


def under_way(dataset: Dataset, kind: Kind) -> Scanned:
    return Scanned(dataset.dataset, kind, note=f"another {kind} scan of {dataset.dataset} is under way")


def record(
    connection: "Connection[dict[str, Any]]",
    scanned: Scanned,
    run_id: str,
    started_at: datetime,
    detail: dict[str, Any],
) -> None:
    """That the scan ended, and what it came to."""
    scans.record_scan(
        connection,
        Scan(
            run_id=run_id,
            kind=scanned.kind,
            dataset=scanned.dataset,
            started_at=started_at,
            keys=scanned.keys,
            errors=scanned.errors,
            warnings=scanned.warnings,
            detail={"left": scanned.left, **detail},
        ),
    )


def _look_at(workshop: Workshop, dataset: Dataset, run_id: str, key: str) -> Sequence[Verdict] | None:
    """Judge what is published of the key and write it down; None when it is just being published, and so for the next
    time. What looks wrong is looked at again: it may have been published while it was read."""
    revision = current_revision(workshop.database, key)
    verdicts = _verdicts(workshop, dataset, revision) if revision else ()
    if not all(verdict.passed for verdict in verdicts):
        revision = settled_revision(workshop.database, key)
        verdicts = _verdicts(workshop, dataset, revision) if revision else ()
        if not all(verdict.passed for verdict in verdicts) and _moves(workshop, key, revision):
            return None
    if revision is None:
        return None
    errors = sum(found.finding.severity is Severity.ERROR for found in _found(key, verdicts))
    with workshop.database.transaction() as connection:
        for verdict in verdicts:
            found = [asdict(finding) for finding in verdict.findings]
            findings.record(connection, run_id, dataset.dataset, key, None, verdict.gate, found)
        scans.looked_at(connection, key, revision.revision, errors)
    return verdicts


def _moves(workshop: Workshop, key: str, revision: Revision | None) -> bool:
    """Whether somebody is publishing the key, or has to finish doing so, or has just done it."""
    return publish_intent(workshop.database, key) or current_revision(workshop.database, key) != revision


def _verdicts(workshop: Workshop, dataset: Dataset, revision: Revision) -> tuple[Verdict, ...]:
    subject = read_published(workshop.store, Layout(dataset.pipeline), revision)
    verdict = judge_published_bytes(subject)
    if not subject.is_as_recorded:
        return (verdict,)  # the gates judged other bytes
    return (verdict, *_table_verdicts(workshop, dataset, subject))


def _table_verdicts(workshop: Workshop, dataset: Dataset, subject: PublishedSubject) -> tuple[Verdict, ...]:
    """A gate that cannot judge is red; the other keys are looked at all the same."""
    key = subject.recorded.key
    try:
        judged = _table_subject(workshop, dataset, subject)
        return judge_published(judged) if judged else ()
    except InputUnreadable:
        measured = "bytes that cannot be read"
    except KfmError:
        raise
    except Exception as failure:  # noqa: BLE001 - what it is may quote the data
        log.error("the gates failed over %s: %s\n%s", key, type(failure).__name__, trace_of(failure))
        measured = f"{type(failure).__name__} in a gate"
    return (Verdict("published", (error("published-judged", "table", "a verdict of every gate", measured),)),)


def _table_subject(workshop: Workshop, dataset: Dataset, subject: PublishedSubject) -> TableSubject | None:
    """Without precedents: how much a table may differ from what came before was judged when it was published."""
    policy = workshop.policy(dataset)
    published = table_then(dataset, policy, subject.described)
    if published is None or subject.content is None:
        return None
    key = subject.recorded.key
    return TableSubject(
        dataset=dataset,
        published=published,
        table=read_parquet(subject.content, key),
        data=subject.content,
        content_hash=subject.recorded.content_hash,
        window=window_of_key(workshop.database, key),
        may_show=policy.is_open,
    )


def _found(key: str, verdicts: Iterable[Verdict]) -> list[Found]:
    return [Found(key, verdict.gate, finding) for verdict in verdicts for finding in verdict.findings]

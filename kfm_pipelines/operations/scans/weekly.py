"""The weekly deep scan: the suites of a dataset over many published keys at once, and the Data Docs about it.

A suite may expect things of a dataset that no single key can show. The newest keys are taken, up to so many days and
rows; one that was published under other rules is left out, and so is one that was changed in the store, which is told.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates.expectations import Suite, judge_suite, suites_of
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.operations.scans import tables as scans
from kfm_pipelines.operations.scans.data_docs import write_data_docs
from kfm_pipelines.operations.scans.nightly import (
    ProgressCallback,
    ScanFinding,
    ScanResult,
    already_running_result,
    record_result,
    scan_findings,
    scan_key,
)
from kfm_pipelines.operations.scans.tables import ScanKind
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.read_back import read_published, table_as_published
from kfm_pipelines.state import verdicts
from kfm_pipelines.state.keys import window_of_key
from kfm_pipelines.state.revisions import Revision, newest_revisions
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    import pyarrow as pa

GATE = "deep"


@dataclass(frozen=True, slots=True)
class ScanScope:
    """How far back a deep scan looks."""

    days: int = 3660
    rows: int = 2_000_000


DEFAULT_SCOPE = ScanScope()


def deep_scan(
    services: Services,
    dataset: Dataset,
    run_id: str,
    scope: ScanScope = DEFAULT_SCOPE,
    on_progress: ProgressCallback = lambda _: None,
) -> ScanResult:
    """Judge the dataset's suites over what is published of it. A dataset without one has nothing to be judged by."""
    published = published_table(dataset, policy_of(services, dataset))
    suites = suites_of(services.settings.resources, dataset, published)
    if not suites:
        return ScanResult(dataset.dataset, ScanKind.DEEP, note=f"{dataset.dataset} declares no suite")
    with scans.scan_lock(services.database, ScanKind.DEEP, dataset.dataset) as started_at:
        if started_at is None:
            return already_running_result(dataset, ScanKind.DEEP)
        gathered = _combine_tables(services, dataset, run_id, scope, on_progress)
        scanned = _judge_suites(services, dataset, suites, gathered, run_id, started_at)
        with services.database.transaction() as connection:
            found = [asdict(one.finding) for one in scanned.findings if one.key is None]
            verdicts.record_findings(connection, run_id, dataset.dataset, None, None, GATE, found)
            rows = gathered.subject.table.num_rows if gathered.subject else 0
            detail = {"suites": sorted(suites), "rows": rows, "data_docs": scanned.data_docs}
            record_result(connection, scanned, run_id, started_at, detail)
    return scanned


@dataclass(frozen=True, slots=True)
class _CombinedTables:
    """Published tables of many keys as one."""

    subject: TableSubject | None  # None when there is no key to judge
    keys: int
    keys_left: int
    keys_left_out: int
    findings: tuple[ScanFinding, ...]  # about single keys, and written down already


def _combine_tables(
    services: Services, dataset: Dataset, run_id: str, scope: ScanScope, on_progress: ProgressCallback
) -> _CombinedTables:
    import pyarrow as pa

    revisions = newest_revisions(services.database, dataset.dataset, days=scope.days)
    taken: list[Revision] = []
    tables: list[pa.Table] = []
    found: list[ScanFinding] = []
    shape: Table | None = None
    read = rows = 0
    for revision in revisions:
        if rows >= scope.rows:
            break
        published = read_published(services.store, Layout(dataset.pipeline), revision)
        declared = table_as_published(dataset, policy_of(services, dataset), published.parsed_item)
        if published.content is None or not published.matches_record:
            found += scan_findings(revision.key, scan_key(services, dataset, run_id, revision.key) or ())
        # Masked and exempted keys of one dataset have different columns; the newest key says which are looked at.
        elif declared is not None and shape in (None, declared):
            shape = declared
            taken.append(revision)
            tables.append(read_parquet(published.content, revision.key).slice(0, scope.rows - rows))
            rows += tables[-1].num_rows
        read += 1
        on_progress(read)
    subject = None if shape is None else _subject(services, dataset, shape, _concatenate(tables), taken)
    return _CombinedTables(subject, len(taken), len(revisions) - read, read - len(taken), tuple(found))


def _concatenate(tables: "list[pa.Table]") -> "pa.Table":
    """Whether a column may be null is no part of what an Item says of it, so that alone may differ."""
    import pyarrow as pa

    return pa.concat_tables(tables, promote_options="default")


def _subject(
    services: Services, dataset: Dataset, shape: Table, table: "pa.Table", revisions: list[Revision]
) -> TableSubject:
    windows = [window_of_key(services.database, revision.key) for revision in (revisions[0], revisions[-1])]
    digests = "".join(revision.content_hash for revision in revisions)
    return TableSubject(
        dataset=dataset,
        published=shape,
        table=table,
        data=b"",  # there is no one file
        content_hash=hashlib.sha256(digests.encode()).hexdigest(),
        window=(min(start for start, _ in windows), max(end for _, end in windows)),
        may_sample=policy_of(services, dataset).is_open,
    )


def _judge_suites(
    services: Services,
    dataset: Dataset,
    suites: Mapping[str, Suite],
    combined: _CombinedTables,
    run_id: str,
    started_at: datetime,
) -> ScanResult:
    subject = combined.subject
    scanned = ScanResult(
        dataset.dataset,
        ScanKind.DEEP,
        keys=combined.keys,
        keys_left=combined.keys_left,
        keys_left_out=combined.keys_left_out,
        findings=combined.findings,
    )
    if subject is None:
        return scanned if combined.findings else replace(scanned, note="nothing published to look at")
    judged = [judge_suite(suite, subject, values=subject.may_sample) for suite in suites.values()]
    found = [ScanFinding(None, GATE, finding) for one in judged for finding in one.findings]
    results = [one.gx for one in judged if one.gx is not None]
    first_page = write_data_docs(services.store, dataset, results, run_id=run_id, at=started_at)
    return replace(scanned, findings=(*combined.findings, *found), data_docs=f"{services.store.url}/{first_page}")

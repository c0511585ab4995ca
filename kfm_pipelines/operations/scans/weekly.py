"""The weekly deep scan: suites over the newest published keys at once, for what no single key can show."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kfm_pipelines.care.governance import policy_of, table_for_readers
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates.expectations import Suite, judge_suite, suites_of
from kfm_pipelines.gates.verdict import TableSubject
from kfm_pipelines.operations.scans import tables as scans
from kfm_pipelines.operations.scans.data_docs import write_data_docs
from kfm_pipelines.operations.scans.nightly import ProgressCallback, scan_key
from kfm_pipelines.operations.scans.result import ScanFinding, ScanKind, ScanResult, already_running, scan_findings
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
MAX_DAYS, MAX_ROWS = 3660, 2_000_000  # how far back a deep scan reaches


def deep_scan(
    services: Services,
    dataset: Dataset,
    run_id: str,
    days: int = MAX_DAYS,
    rows: int = MAX_ROWS,
    on_progress: ProgressCallback = lambda _: None,
) -> ScanResult:
    """Judges the dataset's suites over what is published. A dataset without a suite gets only a note."""
    published = table_for_readers(services, dataset)
    suites = suites_of(services.settings.resources, dataset, published)
    if not suites:
        return ScanResult(dataset.dataset, ScanKind.DEEP, note=f"{dataset.dataset} declares no suite")
    with scans.scan_lock(services.database, ScanKind.DEEP, dataset.dataset) as started_at:
        if started_at is None:
            return already_running(dataset.dataset, ScanKind.DEEP)
        revisions = newest_revisions(services.database, dataset.dataset, days=days)
        result, subject = _combine_tables(services, dataset, run_id, revisions, rows, on_progress)
        if subject is not None:
            result = _judge_suites(services, suites, subject, result, run_id, started_at)
        elif not result.findings:
            result = replace(result, note="nothing is published")
        with services.database.transaction() as connection:
            # Findings about single keys are recorded already.
            found = [asdict(one.finding) for one in result.findings if one.key is None]
            verdicts.record_findings(connection, run_id, dataset.dataset, None, None, GATE, found)
            judged = subject.table.num_rows if subject else 0
            detail = {"suites": sorted(suites), "rows": judged, "data_docs": result.data_docs}
            scans.record_scan(connection, result, run_id, started_at, detail)
    return result


def _combine_tables(
    services: Services,
    dataset: Dataset,
    run_id: str,
    revisions: Sequence[Revision],
    max_rows: int,
    on_progress: ProgressCallback,
) -> tuple[ScanResult, TableSubject | None]:
    """Returns the published tables of many keys as one subject, or None when there is nothing to judge."""
    taken: list[Revision] = []
    tables: list[pa.Table] = []
    found: list[ScanFinding] = []
    shape: Table | None = None
    read = rows = 0
    for revision in revisions:
        if rows >= max_rows:
            break
        published = read_published(services.store, Layout(dataset.pipeline), revision)
        declared = table_as_published(dataset, policy_of(services, dataset), published.parsed_item)
        if published.content is None or not published.matches_record:
            found += scan_findings(revision.key, scan_key(services, dataset, run_id, revision.key) or ())
        # Masked and exempted keys of a dataset have different columns; the newest key decides which are judged.
        elif declared is not None and shape in (None, declared):
            shape = declared
            taken.append(revision)
            tables.append(read_parquet(published.content, revision.key).slice(0, max_rows - rows))
            rows += tables[-1].num_rows
        read += 1
        on_progress(read)
    left, left_out = len(revisions) - read, read - len(taken)
    result = ScanResult(dataset.dataset, ScanKind.DEEP, len(taken), left, left_out, tuple(found))
    return result, None if shape is None else _subject(services, dataset, shape, tables, taken)


def _subject(
    services: Services, dataset: Dataset, shape: Table, tables: "list[pa.Table]", revisions: list[Revision]
) -> TableSubject:
    import pyarrow as pa

    windows = [window_of_key(services.database, revision.key) for revision in (revisions[0], revisions[-1])]
    digests = "".join(revision.content_hash for revision in revisions)
    return TableSubject(
        dataset=dataset,
        published=shape,
        table=pa.concat_tables(tables, promote_options="default"),  # the tables may differ in nullability
        data=b"",  # there is no single file
        content_hash=hashlib.sha256(digests.encode()).hexdigest(),
        window=(min(start for start, _ in windows), max(end for _, end in windows)),
        may_sample=policy_of(services, dataset).is_open,
    )


def _judge_suites(
    services: Services,
    suites: Mapping[str, Suite],
    subject: TableSubject,
    result: ScanResult,
    run_id: str,
    started_at: datetime,
) -> ScanResult:
    judged = [judge_suite(suite, subject, values=subject.may_sample) for suite in suites.values()]
    found = [ScanFinding(None, GATE, finding) for one in judged for finding in one.findings]
    gx_results = [one.gx for one in judged if one.gx is not None]
    index = write_data_docs(services.store, subject.dataset, gx_results, run_id=run_id, at=started_at)
    return replace(result, findings=(*result.findings, *found), data_docs=f"{services.store.url}/{index}")

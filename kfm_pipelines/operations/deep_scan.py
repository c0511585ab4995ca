"""The weekly deep scan: the suites of a dataset over many published keys at once, and the Data Docs about it.

A suite may expect things of a dataset that no single key can show. The newest keys are taken, up to so many days and
rows; one that was changed in the store, or was published under other rules, is left out.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kfm_pipelines.care.published import published_table
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Table
from kfm_pipelines.gates.expectations import Suite, gx_result, judge_suite, suites_of
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.operations.data_docs import write_data_docs
from kfm_pipelines.operations.inputs import window_of_key
from kfm_pipelines.operations.published import read_published, table_then
from kfm_pipelines.operations.scan import Found, Scanned, Tell, record, under_way
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.parquet import read_parquet
from kfm_pipelines.state import findings, scans
from kfm_pipelines.state.revisions import Revision, newest_revisions
from kfm_pipelines.state.scans import Kind
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    import pyarrow as pa

GATE = "deep"


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a deep scan looks."""

    days: int = 3660
    rows: int = 2_000_000


WHOLE_REACH = Reach()


def deep_scan(
    workshop: Workshop,
    dataset: Dataset,
    run_id: str,
    reach: Reach = WHOLE_REACH,
    tell: Tell = lambda _: None,
) -> Scanned:
    """Judge the dataset's suites over what is published of it. A dataset without one has nothing to be judged by."""
    published = published_table(dataset, workshop.policy(dataset))
    suites = suites_of(workshop.settings.resources, dataset, published)
    if not suites:
        return Scanned(dataset.dataset, Kind.DEEP, note=f"{dataset.dataset} declares no suite")
    with scans.scanning(workshop.database, Kind.DEEP, dataset.dataset) as started_at:
        if started_at is None:
            return under_way(dataset, Kind.DEEP)
        gathered = _gathered(workshop, dataset, reach, tell)
        scanned = _judged(workshop, dataset, suites, gathered, run_id, started_at)
        with workshop.database.transaction() as connection:
            found = [asdict(one.finding) for one in scanned.found]
            findings.record(connection, run_id, dataset.dataset, None, None, GATE, found)
            rows = gathered.subject.table.num_rows if gathered.subject else 0
            detail = {"suites": sorted(suites), "rows": rows, "data_docs": scanned.pages}
            record(connection, scanned, run_id, started_at, detail)
    return scanned


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Published tables of many keys as one."""

    subject: TableSubject | None  # None when there is no key to look at
    keys: int
    left: int


def _gathered(workshop: Workshop, dataset: Dataset, reach: Reach, tell: Tell) -> _Gathered:
    import pyarrow as pa

    revisions = newest_revisions(workshop.database, dataset.dataset, days=reach.days)
    taken: list[Revision] = []
    tables: list[pa.Table] = []
    shape: Table | None = None
    rows = 0
    for number, revision in enumerate(revisions, start=1):
        if rows >= reach.rows:
            break
        found = _published_table(workshop, dataset, revision)
        # Masked and exempted keys of one dataset have different columns; the newest key says which are looked at.
        if found is not None and shape in (None, found[0]):
            shape = found[0]
            taken.append(revision)
            tables.append(found[1].slice(0, reach.rows - rows))
            rows += tables[-1].num_rows
        tell(number)
    left = len(revisions) - len(taken)
    if shape is None:
        return _Gathered(None, 0, left)
    # Whether a column may be null is no part of what an Item says of it, so that alone may differ.
    whole = pa.concat_tables(tables, promote_options="default")
    return _Gathered(_subject(workshop, dataset, shape, whole, taken), len(taken), left)


def _published_table(workshop: Workshop, dataset: Dataset, revision: Revision) -> "tuple[Table, pa.Table] | None":
    subject = read_published(workshop.store, Layout(dataset.pipeline), revision)
    if subject.content is None or not subject.is_as_recorded:
        return None
    declared = table_then(dataset, workshop.policy(dataset), subject.described)
    return None if declared is None else (declared, read_parquet(subject.content, revision.key))


def _subject(
    workshop: Workshop, dataset: Dataset, shape: Table, table: "pa.Table", taken: list[Revision]
) -> TableSubject:
    windows = [window_of_key(workshop.database, revision.key) for revision in (taken[0], taken[-1])]
    digests = "".join(revision.content_hash for revision in taken)
    return TableSubject(
        dataset=dataset,
        published=shape,
        table=table,
        data=b"",  # there is no one file
        content_hash=hashlib.sha256(digests.encode()).hexdigest(),
        window=(min(start for start, _ in windows), max(end for _, end in windows)),
        may_show=workshop.policy(dataset).is_open,
    )


def _judged(
    workshop: Workshop,
    dataset: Dataset,
    suites: Mapping[str, Suite],
    gathered: _Gathered,
    run_id: str,
    started_at: datetime,
) -> Scanned:
    subject = gathered.subject
    if subject is None:
        return Scanned(dataset.dataset, Kind.DEEP, left=gathered.left, note="nothing published to look at")
    found = [
        Found(None, GATE, finding) for suite in suites.values() for finding in judge_suite(suite, subject).findings
    ]
    results = [
        gx_result(shown, subject.table, values=subject.may_show)
        for suite in suites.values()
        if (shown := _of_published_columns(suite, subject))
    ]
    first_page = write_data_docs(workshop.store, dataset, results, run_id=run_id, at=started_at)
    return Scanned(
        dataset.dataset,
        Kind.DEEP,
        keys=gathered.keys,
        left=gathered.left,
        found=tuple(found),
        pages=f"{workshop.store.url}/{first_page}",
    )


def _of_published_columns(suite: Suite, subject: TableSubject) -> Suite | None:
    """A suite is about the table that the policy leaves; one that was exempted from it lacks some of its columns."""
    published = {column.name for column in subject.published.columns}
    kept = [one for one in suite.expectations if suite.origins_of(one) <= published]
    return suite.model_copy(update={"expectations": kept}) if kept else None

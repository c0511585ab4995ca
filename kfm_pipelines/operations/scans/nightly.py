"""The nightly scan: is every published key unchanged, and would it still pass its gates? Changes nothing."""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable, KfmError
from kfm_pipelines.gates import TableSubject, Verdict, judge_quality, judge_schema
from kfm_pipelines.gates.published_release import PublishedSubject, judge_published_bytes
from kfm_pipelines.gates.verdict import Severity, error
from kfm_pipelines.operations.scans import tables
from kfm_pipelines.operations.scans.result import ScanFinding, ScanKind, ScanResult, already_running, scan_findings
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.publish.read_back import read_published, table_as_published
from kfm_pipelines.state.keys import window_of_key
from kfm_pipelines.state.revisions import Revision, current_revision, lock_current_revision, mark_collection_changed
from kfm_pipelines.state.transactions import has_publish_intent
from kfm_pipelines.state.verdicts import record_findings
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.configure import error_fields

log = logging.getLogger(__name__)

MAX_KEYS_PER_SCAN = 5000

ProgressCallback = Callable[[int], None]


def nightly_scan(
    services: Services,
    dataset: Dataset,
    run_id: str,
    *,
    full: bool = False,
    limit: int = MAX_KEYS_PER_SCAN,
    on_progress: ProgressCallback = lambda _: None,
) -> ScanResult:
    """Scans keys published since their last scan, or with `full` all, then the longest unscanned."""
    with tables.scan_lock(services.database, ScanKind.NIGHTLY, dataset.dataset) as started_at:
        if started_at is None:
            return already_running(dataset.dataset, ScanKind.NIGHTLY)
        due, left = tables.select_due_keys(services.database, dataset.dataset, full=full, limit=limit)
        found: list[ScanFinding] = []
        postponed = 0
        for number, key in enumerate(due, start=1):
            verdicts = scan_key(services, dataset, run_id, key)
            postponed += verdicts is None
            found += scan_findings(key, verdicts or ())
            on_progress(number)
        keys = len(due) - postponed
        result = ScanResult(dataset.dataset, ScanKind.NIGHTLY, keys, left + postponed, findings=tuple(found))
        with services.database.transaction() as connection:
            tables.record_scan(connection, result, run_id, started_at, {"full": full})
            if due:
                mark_collection_changed(connection, dataset.dataset)  # the collection shows the results of scans
    for problem in refresh_stale_collections(services):
        log.warning("%s; a later run or tick writes it", problem)
    return result


def scan_key(services: Services, dataset: Dataset, run_id: str, key: str) -> Sequence[Verdict] | None:
    """Returns None for a key being published. A failing one is judged twice: it may just have been published."""
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
            for gate, findings in found:
                record_findings(connection, run_id, dataset.dataset, key, None, gate, findings)
    return verdicts


def _is_being_published(services: Services, key: str, revision: Revision | None) -> bool:
    """Whether the key is being published, awaits completion after a crash, or has just been published."""
    return has_publish_intent(services.database, key) or current_revision(services.database, key) != revision


def _judge_revision(services: Services, dataset: Dataset, revision: Revision) -> tuple[Verdict, ...]:
    subject = read_published(services.store, Layout(dataset.pipeline), revision)
    verdict = judge_published_bytes(subject)
    if not subject.matches_record:
        return (verdict,)  # these are not the bytes that passed the gates
    return (verdict, *_judge_table(services, dataset, subject))


def _judge_table(services: Services, dataset: Dataset, subject: PublishedSubject) -> tuple[Verdict, ...]:
    """A gate that fails counts as red, so that other keys are still scanned. Suites run in the weekly scan."""
    key = subject.recorded.key
    try:
        judged = _table_subject(services, dataset, subject)
        if judged is None:
            return ()
        schema = judge_schema(judged)
        return (schema, judge_quality(judged)) if schema.passed else (schema,)
    except InputUnreadable:
        measured = "bytes that cannot be read"
    except KfmError:
        raise
    except Exception as failure:  # noqa: BLE001 - its message may quote the data
        log.error("the gates failed over %s", key, extra={"idempotency_key": key, **error_fields(failure)})
        measured = f"{type(failure).__name__} in a gate"
    return (Verdict("published", (error("published-judged", "table", "a verdict of every gate", measured),)),)


def _table_subject(services: Services, dataset: Dataset, subject: PublishedSubject) -> TableSubject | None:
    """Has no baselines: drift was judged at publication."""
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
        area=KeyConfig(services, dataset).area_to_judge(published),
    )

"""Runs the table gates on each key's table as it would be published; every verdict names the digest of its bytes."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.governance import table_for_readers
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import CareRefused, GateRefused, IntegrityRefused, QualityRefused
from kfm_pipelines.gates import Baselines, Finding, Severity, TableSubject, Verdict, judge_quality, judge_schema
from kfm_pipelines.gates.expectations import Suite, judge_suite, load_suite, suite_digest
from kfm_pipelines.gates.quality.table import RULES_BEFORE_MASKING
from kfm_pipelines.gates.verdict import error, judge
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.telemetry.spans import trace_gate
from kfm_pipelines.stages.validate.report import record_refusal
from kfm_pipelines.state.keys import Claim, window_of_key
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.state.transactions import KeyFacts, load_facts
from kfm_pipelines.state.verdicts import GateVerdict
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.work import read_attachments
from kfm_pipelines.telemetry.logs.lines import format_traceback

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

BEFORE_MASKING = "before masking"  # in the place of a digest
Report = dict[str, Any] | None
REFUSALS: dict[str, type[GateRefused]] = {
    "qa": QualityRefused,
    "integrity": IntegrityRefused,
    "care": CareRefused,
    "governance": CareRefused,
}


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    key: str
    verdict: Verdict
    record: GateVerdict


def judge_table(
    services: Services, config: KeyConfig, claim: Claim, facts: KeyFacts, neighbour_rows: Sequence[int]
) -> list[KeyVerdict]:
    """Judges the masked table. `neighbour_rows` are those of the windows around it, where they are comparable."""
    layout, dataset, rules = Layout(config.dataset.pipeline), config.dataset, config.rules(claim.key)
    published = rules.published_table(dataset)
    path = layout.masked_table(claim.key, claim.epoch)
    data = services.store.read_work(path)
    table = services.store.read_table(path, partial(read_parquet, name=claim.key))
    subject = TableSubject(
        dataset=dataset,
        published=published,
        table=table,
        data=data,
        content_hash=sha256(data),
        window=facts.window,
        # Nobody may see rows of a release before its reviewers do.
        may_sample=rules.policy.is_open and dataset.review == "none",
        baselines=load_baselines(services, dataset, facts, table, tuple(neighbour_rows)),
        approved=config.approved,
        attachments=read_attachments(services.store, partial(layout.masked_file, claim.key, claim.epoch)),
        area=config.area_to_judge(published),
        left_out=facts.detail(Step.COMPUTE).get("left_out", {}),
        found_before_masking=_found_before_masking(facts),
    )
    return [
        KeyVerdict(claim.key, verdict, gate_record(verdict, subject.content_hash, report))
        for verdict, report in table_verdicts(services, subject)
    ]


def _found_before_masking(facts: KeyFacts) -> tuple[Finding, ...]:
    recorded = facts.detail(Step.MASK).get("findings", ())
    return tuple(Finding(**{**one, "severity": Severity(one["severity"])}) for one in recorded)


def table_verdicts(services: Services, subject: TableSubject) -> Iterator[tuple[Verdict, Report]]:
    """Yields verdicts with their suite reports. Quality is judged only if the schema passes."""
    schema = trace_gate(services, "schema", lambda: _judge_safely("schema", judge_schema, subject))
    yield schema, None
    if schema.passed:
        reports: list[Report] = []
        yield trace_gate(services, "qa", lambda: _quality(services, subject, reports)), reports[0]


def fitness_to_mask(services: Services, config: KeyConfig, key: str, table: "pa.Table", data: bytes) -> Verdict:
    """Masking relies on the schema, so a table that is not as declared is refused before it is masked. Its places are
    judged here, because those published may lie outside the area although the true ones do not."""
    dataset, window = config.dataset, window_of_key(services.database, key)
    area = config.area_to_judge(dataset.table)
    subject = TableSubject(dataset, dataset.table, table, data, sha256(data), window, area=area)
    schema = _judge_safely("schema", judge_schema, subject)
    return judge("schema", RULES_BEFORE_MASKING, subject) if schema.passed else schema


def judge_before_masking(
    services: Services, config: KeyConfig, claim: Claim, data: bytes, table: "pa.Table"
) -> tuple[Finding, ...]:
    """Returns what does not refuse the table. Records a refusal like any other, but without the bytes or their digest,
    because they are not masked."""
    verdict = trace_gate(services, "schema", lambda: fitness_to_mask(services, config, claim.key, table, data))
    if not verdict.passed:
        record_refusal(services, config.dataset, claim, [gate_record(verdict, BEFORE_MASKING)])
        raise masking_refusal(claim.key, verdict)
    return verdict.findings


def masking_refusal(key: str, verdict: Verdict) -> GateRefused:
    return GateRefused(f"{key}: schema gate, before masking: {verdict.reason}")


def refusal_of(key: str, verdict: Verdict) -> GateRefused:
    return REFUSALS.get(verdict.gate, GateRefused)(f"{key}: {verdict.gate} gate: {verdict.reason}")


def load_baselines(
    services: Services, dataset: Dataset, facts: KeyFacts, table: "pa.Table", neighbour_rows: tuple[int, ...]
) -> Baselines:
    """Row counts are comparable only under the same policy."""
    current = facts.current
    if current is None:
        return Baselines(neighbour_rows=neighbour_rows)
    then = load_facts(services.database, {facts.key: current.txn})[facts.key]
    if not _have_same_details(facts, then, Step.MASK, "policy", "exemption"):
        return Baselines(neighbour_rows=neighbour_rows)
    drifted = _have_same_details(facts, then, Step.COMPUTE, "etags") and _has_drifted(services, dataset, current, table)
    return Baselines(
        previous_rows=current.rows,
        neighbour_rows=neighbour_rows,
        same_inputs_hash=current.content_hash if drifted else None,
    )


def _have_same_details(now: KeyFacts, then: KeyFacts, step: Step, *names: str) -> bool:
    """Whether this transaction and the one of the current revision agree on these details of a step."""
    if step not in now.details or step not in then.details:
        return False
    return all(now.details[step].get(name) == then.details[step].get(name) for name in names)


def _has_drifted(services: Services, dataset: Dataset, current: Revision, table: "pa.Table") -> bool:
    """Whether the shared columns hold different values. Metadata is ignored: a better description is no drift."""
    path = Layout(dataset.pipeline).content(current.content_hash)
    if not services.store.exists(path):
        return False
    published = read_parquet(services.store.read(path), current.key)
    shared = [name for name in published.column_names if name in table.column_names]
    return not published.select(shared).equals(table.select(shared))


def _quality(services: Services, subject: TableSubject, reports: list[Report]) -> Verdict:
    """Judges by the declared thresholds and the suite, if any, whose report (or None) it appends to `reports`."""
    verdict = _judge_safely("qa", judge_quality, subject)
    name, dataset = subject.dataset.quality.suite, subject.dataset
    if name is None:
        reports.append(None)
        return verdict
    suite = suite_of(services, name, table_for_readers(services, dataset))
    try:
        judged = judge_suite(suite, subject)
    except MemoryError:
        raise
    except Exception as failure:  # noqa: BLE001 - its message may quote the data
        reports.append(None)
        return Verdict(verdict.gate, (*verdict.findings, _failure_finding("qa", failure)), verdict.rules)
    reports.append(judged.report)
    return Verdict(verdict.gate, (*verdict.findings, *judged.findings), (*verdict.rules, *judged.rules))


def suite_of(services: Services, name: str, table: Table) -> Suite:
    """Returns a suite, checked against its table; loads it again when the file has changed."""
    resources = services.settings.resources
    version = (suite_digest(resources, name), *(column.name for column in table.columns))
    return services.load_once(("suite", name, *version), lambda: load_suite(resources, name, table))


def _judge_safely(gate: str, gate_function: Callable[[TableSubject], Verdict], subject: TableSubject) -> Verdict:
    try:
        return gate_function(subject)
    except MemoryError:
        raise
    except Exception as failure:  # noqa: BLE001 - its message may quote the data
        return Verdict(gate, (_failure_finding(gate, failure),))


def _failure_finding(gate: str, failure: Exception) -> Finding:
    """The same table would fail again, so this is a verdict and not a reason to retry."""
    log.error("the %s gate failed: %s\n%s", gate, type(failure).__name__, format_traceback(failure))
    return error("judged", "table", "a verdict", f"{type(failure).__name__} while judging")


def gate_record(verdict: Verdict, digest: str, report: Report = None) -> GateVerdict:
    """Returns the verdict as it is recorded, with the digest of the bytes it is about."""
    findings = tuple(asdict(finding) for finding in verdict.findings)
    return GateVerdict(verdict.gate, digest, verdict.passed, findings, verdict.rules, report)

"""The table gates judge each key's table as it would be published, and what they say is kept with the digest."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.governance import KeyRules, policy_of
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import CareRefused, GateRefused, IntegrityRefused, QualityRefused
from kfm_pipelines.gates import ApprovedSchema, Finding, TableSubject, Verdict, judge_quality, judge_schema
from kfm_pipelines.gates.expectations import judge_suite
from kfm_pipelines.gates.quality.table import PRIMARY_KEY_UNIQUE
from kfm_pipelines.gates.suites import suite_of
from kfm_pipelines.gates.verdict import error, judge
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.inputs import window_of_key
from kfm_pipelines.stages.handoff import Handoff
from kfm_pipelines.stages.telemetry.gates import trace_gate
from kfm_pipelines.stages.validate.baselines import load_baselines
from kfm_pipelines.stages.validate.report import write_validation_report
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.verdicts import GateVerdict, record_verdict
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


def judge_table(
    services: Services, dataset: Dataset, rules: KeyRules, approved: ApprovedSchema, handoff: Handoff
) -> list[Verdict]:
    """Every verdict is kept with the digest of what it is about."""
    claim = handoff.claim
    table = read_parquet(handoff.data, claim.key)
    subject = TableSubject(
        dataset=dataset,
        published=rules.published_table(dataset),
        table=table,
        data=handoff.data,
        content_hash=handoff.content_hash,
        window=window_of_key(services.database, claim.key),
        # What somebody has to see first, nobody else sees before.
        may_sample=rules.policy.is_open and dataset.review == "none",
        baselines=load_baselines(services, dataset, claim, table, unmasked=rules.policy.is_open),
        approved=approved,
    )
    verdicts = []
    for verdict, report in table_verdicts(services, subject):
        _record(services, dataset, claim, subject.content_hash, verdict, report)
        verdicts.append(verdict)
    return verdicts


def table_verdicts(services: Services, subject: TableSubject) -> Iterator[tuple[Verdict, Report]]:
    """What is in a table is looked at only when its schema is right. A gate that cannot judge refuses."""
    schema = trace_gate(services, "schema", lambda: _judge_safely("schema", judge_schema, subject))
    yield schema, None
    if schema.passed:
        reports: list[Report] = []
        yield trace_gate(services, "qa", lambda: _quality(services, subject, reports)), reports[0]


def _quality(services: Services, subject: TableSubject, reports: list[Report]) -> Verdict:
    """By the declared thresholds, and by the suite of Great Expectations where the dataset has one; its report is left
    in `reports`, or None."""
    verdict = _judge_safely("qa", judge_quality, subject)
    name, dataset = subject.dataset.quality.suite, subject.dataset
    if name is None:
        reports.append(None)
        return verdict
    suite = suite_of(services, name, published_table(dataset, policy_of(services, dataset)))
    try:
        judged = judge_suite(suite, subject)
    except MemoryError:
        raise
    except Exception as failure:  # noqa: BLE001 - what it is may quote the data
        reports.append(None)
        return Verdict(verdict.gate, (*verdict.findings, _failure_finding("qa", failure)), verdict.rules)
    reports.append(judged.report)
    return Verdict(verdict.gate, (*verdict.findings, *judged.findings), (*verdict.rules, *judged.rules))


def _judge_safely(gate: str, gate_function: Callable[[TableSubject], Verdict], subject: TableSubject) -> Verdict:
    try:
        return gate_function(subject)
    except MemoryError:
        raise
    except Exception as failure:  # noqa: BLE001 - what it is may quote the data
        return Verdict(gate, (_failure_finding(gate, failure),))


def _failure_finding(gate: str, failure: Exception) -> Finding:
    """The same table would fail it again, so this is an answer, not a reason to try again."""
    log.error("the %s gate failed: %s\n%s", gate, type(failure).__name__, format_traceback(failure))
    return error("judged", "table", "a verdict", f"{type(failure).__name__} while judging")


def fitness_to_mask(services: Services, dataset: Dataset, key: str, table: "pa.Table", data: bytes) -> Verdict:
    """Masking counts on the schema: what is not as declared is refused before anything is made of it."""
    window = window_of_key(services.database, key)
    subject = TableSubject(dataset, dataset.table, table, data, hashlib.sha256(data).hexdigest(), window)
    schema = _judge_safely("schema", judge_schema, subject)
    return judge("schema", (PRIMARY_KEY_UNIQUE,), subject) if schema.passed else schema


def judge_before_masking(services: Services, dataset: Dataset, handoff: Handoff, table: "pa.Table") -> None:
    """A refusal is on record like any other; the bytes are not masked, so neither they nor their digest are kept."""
    key, data = handoff.claim.key, handoff.data
    verdict = trace_gate(services, "schema", lambda: fitness_to_mask(services, dataset, key, table, data))
    if not verdict.passed:
        _record(services, dataset, handoff.claim, BEFORE_MASKING, verdict)
        write_validation_report(services, dataset, handoff.claim)
        raise masking_refusal(handoff.claim.key, verdict)


def masking_refusal(key: str, verdict: Verdict) -> GateRefused:
    return GateRefused(f"{key}: schema gate, before masking: {verdict.reason}")


def refusal_of(key: str, verdict: Verdict) -> GateRefused:
    return REFUSALS.get(verdict.gate, GateRefused)(f"{key}: {verdict.gate} gate: {verdict.reason}")


def _record(
    services: Services,
    dataset: Dataset,
    claim: Claim,
    digest: str,
    verdict: Verdict,
    report: Report = None,
) -> None:
    findings = tuple(asdict(finding) for finding in verdict.findings)
    judged = GateVerdict(verdict.gate, digest, verdict.passed, findings, verdict.rules, report)
    record_verdict(services.database, claim, dataset.dataset, judged)

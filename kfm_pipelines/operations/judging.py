"""The table gates judge each key's table as it would be published, and what they say is kept with the digest."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import CareRefused, GateRefused, IntegrityRefused, QualityRefused
from kfm_pipelines.gates import TableSubject, Verdict, judge_quality, judge_schema
from kfm_pipelines.gates.expectations import judge_suite
from kfm_pipelines.gates.quality.rows import PRIMARY_KEY_UNIQUE
from kfm_pipelines.gates.verdict import judge
from kfm_pipelines.operations.governance import Rules
from kfm_pipelines.operations.handoff import Handoff
from kfm_pipelines.operations.inputs import window_of_key
from kfm_pipelines.operations.precedents import precedents_of
from kfm_pipelines.operations.schema_approval import approved_schema
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.parquet import read_parquet
from kfm_pipelines.state.claims import Claim
from kfm_pipelines.state.verdicts import Judged, record_verdict

if TYPE_CHECKING:
    import pyarrow as pa

Report = dict[str, Any] | None
REFUSALS: dict[str, type[GateRefused]] = {
    "qa": QualityRefused,
    "integrity": IntegrityRefused,
    "care": CareRefused,
    "governance": CareRefused,
}


def judge_table(workshop: Workshop, dataset: Dataset, rules: Rules, handoff: Handoff) -> list[Verdict]:
    """Every verdict is kept with the digest of what it is about."""
    claim = handoff.claim
    subject = TableSubject(
        dataset=dataset,
        published=rules.published(dataset),
        table=read_parquet(handoff.data, claim.key),
        data=handoff.data,
        content_hash=handoff.content_hash,
        window=window_of_key(workshop.database, claim.key),
        may_show=rules.policy.is_open,
        precedents=precedents_of(workshop.database, dataset, claim),
        approved=approved_schema(workshop, dataset),
    )
    verdicts = []
    for verdict, report in table_verdicts(workshop, subject):
        _record(workshop, dataset, claim, subject, verdict, report)
        verdicts.append(verdict)
    return verdicts


def table_verdicts(workshop: Workshop, subject: TableSubject) -> Iterator[tuple[Verdict, Report]]:
    """What is in a table is looked at only when its schema is right."""
    schema = judge_schema(subject)
    yield schema, None
    if schema.passed:
        yield _quality(workshop, subject)


def _quality(workshop: Workshop, subject: TableSubject) -> tuple[Verdict, Report]:
    """By the declared thresholds, and by the suite of Great Expectations where the dataset has one."""
    verdict = judge_quality(subject)
    name = subject.dataset.quality.suite
    if name is None:
        return verdict, None
    judged = judge_suite(workshop.suite(name, subject.published), subject)
    findings, rules = (*verdict.findings, *judged.findings), (*verdict.rules, *judged.rules)
    return Verdict(verdict.gate, findings, rules), judged.report


def refuse_unfit_to_mask(workshop: Workshop, dataset: Dataset, key: str, table: "pa.Table", data: bytes) -> None:
    """Masking counts on the schema: what is not as declared is refused before anything is made of it."""
    window = window_of_key(workshop.database, key)
    subject = TableSubject(dataset, dataset.table, table, data, hashlib.sha256(data).hexdigest(), window)
    schema = judge_schema(subject)
    for verdict in (schema, judge("schema", (PRIMARY_KEY_UNIQUE,), subject) if schema.passed else schema):
        if not verdict.passed:
            raise GateRefused(f"{key}: schema gate, before masking: {verdict.reason}")


def refusal_of(key: str, verdict: Verdict) -> GateRefused:
    return REFUSALS.get(verdict.gate, GateRefused)(f"{key}: {verdict.gate} gate: {verdict.reason}")


def _record(
    workshop: Workshop,
    dataset: Dataset,
    claim: Claim,
    subject: TableSubject,
    verdict: Verdict,
    report: Report = None,
) -> None:
    findings = tuple(asdict(finding) for finding in verdict.findings)
    judged = Judged(verdict.gate, subject.content_hash, verdict.passed, findings, verdict.rules, report)
    record_verdict(workshop.database, claim, dataset.dataset, judged)

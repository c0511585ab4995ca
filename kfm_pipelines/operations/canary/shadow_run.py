"""Applies a declaration to a key in the shadow tier, without claims or log. Errors of the machine are raised."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.governance import KeyRules, governance_of, policy_of
from kfm_pipelines.declarations import Table, Tolerance
from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import WorkUnit, emit_costs, record_usage
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.errors import KfmError, Retryable
from kfm_pipelines.events import newest_per_object
from kfm_pipelines.gates import ApprovedSchema
from kfm_pipelines.gates.verdict import TableSubject
from kfm_pipelines.parquet.parquet import read_parquet, write_parquet, write_published
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.members import fetch_announced
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines.stages.compute.split import Splitter
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.mask import mask
from kfm_pipelines.stages.telemetry.spans import TRIAL
from kfm_pipelines.stages.validate.table_gates import fitness_to_mask, masking_refusal, table_verdicts
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.state.keys import window_of_key
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.configure import error_fields
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.traces.spans import SpanValue

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

MAX_FAULTS = 20


def may_report_differences(services: Services, *declarations: Dataset) -> bool:
    """Returns whether reports may say how much tables differ: only where nothing is masked or reviewed."""
    return all(policy_of(services, one).is_open and one.review == "none" for one in declarations)


@contextmanager
def record_cost(services: Services, run_id: str, dataset: str, key: str, replay: str | None = None) -> Iterator[None]:
    meter = Meter()
    try:
        yield
    finally:
        used = {WorkUnit("canary", key): meter.read()}
        emit_costs(services, record_usage(services, run_id, used, dataset=dataset, replay=replay))


@dataclass(frozen=True, slots=True)
class ShadowResult:
    """`comparison` is empty when nothing was produced or nothing is published."""

    faults: tuple[str, ...]
    comparison: Mapping[str, Any] = field(default_factory=dict)
    content_hash: str | None = None  # of what was produced

    def as_report(self) -> dict[str, Any]:
        return {"faults": list(self.faults[:MAX_FAULTS]), "faults_in_all": len(self.faults), **self.comparison}


@dataclass(frozen=True, slots=True)
class ShadowRun:
    services: Services
    dataset: Dataset  # as it is published
    candidate: Dataset
    tolerance: Tolerance
    shadow_name: str  # name of the file in the shadow tier
    approved: ApprovedSchema | None = None  # None for a candidate, whose schema is approved when it is promoted

    def fetch_objects(self, key: str) -> tuple[SourceObject, ...]:
        with self.services.database.transaction() as connection:
            events = newest_per_object(events_of(connection, key))
        config = KeyConfig(self.services, self.dataset)
        return tuple(
            SourceObject(uri, one.data, event.late)
            for event in events
            for uri, one in fetch_announced(event, self.dataset, config.load_area, self.services.store).items()
        )

    def run(self, key: str, objects: Sequence[SourceObject], published: bytes | None, rules: KeyRules) -> ShadowResult:
        """Judges the result by the gates, and by comparison with `published` if there is any."""
        dataset = self.dataset.dataset
        about: dict[str, SpanValue] = {"kfm.dataset": dataset, "kfm.key": key, "kfm.stage": "canary"}
        try:
            with (
                log_context(idempotency_key=key, dataset=dataset, stage="canary"),
                self.services.telemetry.spans.span("trial", {**about, TRIAL: self.shadow_name}),
            ):
                return self._run(key, objects, published, rules)
        except (Retryable, MemoryError, OSError):  # of the machine
            raise
        except KfmError as error:
            return ShadowResult((str(error).removeprefix(f"{key}: "),))
        except Exception as error:  # noqa: BLE001 - its message may quote data
            log.warning("the candidate failed on %s", key, extra={"idempotency_key": key, **error_fields(error)})
            return ShadowResult((f"the candidate failed with {type(error).__name__}",))

    def _run(self, key: str, objects: Sequence[SourceObject], published: bytes | None, rules: KeyRules) -> ShadowResult:
        # Loads numpy and pyarrow, which loading the definitions must not.
        from kfm_pipelines.operations.canary.compare import compare as tables

        candidate, shadow = self.candidate, Layout(self.dataset.pipeline).shadow(key, self.shadow_name)
        self.services.store.discard(shadow)  # from an earlier candidate of this version
        config = KeyConfig(self.services, candidate)
        table = Splitter().process(candidate, objects, config.load_area, key).table
        if rules.masks:
            fit = fitness_to_mask(self.services, config, key, table, write_parquet(table))
            if not fit.passed:
                raise masking_refusal(key, fit)
            table = mask(table, candidate, rules.policy, rules.secret).table
        declared = rules.published_table(candidate)
        data = write_published(table, declared, boxes=candidate.processor == "vector")
        self.services.store.write(shadow, data)
        subject = self._subject(key, declared, table, data, config.area_to_judge(declared))
        verdicts = [verdict for verdict, _ in table_verdicts(self.services, subject) if not verdict.passed]
        findings = [f"{verdict.gate} gate: {verdict.reason}" for verdict in verdicts]
        if published is None:
            return ShadowResult(tuple(findings), content_hash=subject.content_hash)
        comparison = tables.compare(
            read_parquet(published, key), read_parquet(data, key), published, data, self.dataset.table.primary_key
        )
        published_rules = governance_of(self.services, self.dataset).rules_for(key)
        places = {*published_rules.published_table(self.dataset).place_columns, *declared.place_columns}
        if may_report_differences(self.services, self.dataset, candidate):
            faults, report = comparison.faults(self.tolerance), tables.full_report(comparison)
        else:
            faults = tables.redacted_faults(comparison, self.tolerance, places)
            report = tables.redacted_report(comparison, self.tolerance, places)
        return ShadowResult((*findings, *faults), report, subject.content_hash)

    def _subject(self, key: str, declared: Table, table: "pa.Table", data: bytes, area: Area | None) -> TableSubject:
        return TableSubject(
            dataset=self.candidate,
            published=declared,
            table=table,
            data=data,
            content_hash=hashlib.sha256(data).hexdigest(),
            window=window_of_key(self.services.database, key),
            approved=self.approved,
            area=area,
        )

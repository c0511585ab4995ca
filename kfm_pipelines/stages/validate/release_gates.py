"""Runs the release gates on the staged bytes, their inputs and what the events announced."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from kfm_pipelines.care.governance import KeyRules
from kfm_pipelines.care.verifier import Evidence, digest_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import CareRefused, KfmError
from kfm_pipelines.gates import (
    AnnouncedInput,
    Finding,
    ReleaseSubject,
    Severity,
    Verdict,
    judge_care,
    judge_governance,
    judge_integrity,
)
from kfm_pipelines.gates.release import DATA, ITEM
from kfm_pipelines.parquet.parquet import rewrite_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.stages.raster_mask import reassemble
from kfm_pipelines.stages.telemetry.spans import trace_gate
from kfm_pipelines.stages.validate.table_gates import KeyVerdict, gate_record
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.transactions import KeyFacts
from kfm_pipelines.state.wal import Step, fetched_inputs
from kfm_pipelines.stores import Layout


def judge_release(
    services: Services, dataset: Dataset, claim: Claim, rules: KeyRules, release: Release, facts: KeyFacts
) -> list[KeyVerdict]:
    """Returns the verdicts up to the first red one. A gate that cannot finish counts as a refusal."""
    evidence = _evidence(services, dataset, claim, rules, release)
    digest = digest_of(evidence)
    subject = ReleaseSubject(
        dataset=dataset,
        key=claim.key,
        inputs=_inputs(facts),
        judged=release.content_hash,
        digests={
            DATA: release.content_hash,
            ITEM: release.item_hash,
            **release.files,
            **release.documents,
            **release.records,
        },
        staged={
            DATA: evidence.data,
            ITEM: evidence.item,
            **evidence.files,
            **evidence.documents,
            **evidence.records,
        },
        policy=rules.policy.name,
        care=rules.masking_status,
        verified=None,
        digest=digest,
    )
    judged: list[KeyVerdict] = []
    gates: dict[str, Callable[[], Verdict]] = {
        "integrity": lambda: judge_integrity(subject),
        "care": lambda: _exemption_verdict(rules) or judge_care(rules.policy, dataset, evidence),
        "governance": lambda: judge_governance(replace(subject, verified=_verified_digest(judged))),
    }
    for name, gate in gates.items():
        verdict = trace_gate(services, name, partial(_judge_or_refuse, claim, name, gate))
        judged.append(KeyVerdict(claim.key, verdict, gate_record(verdict, digest)))
        if not verdict.passed:
            break
    return judged


def _verified_digest(judged: Sequence[KeyVerdict]) -> str | None:
    """Returns the digest that the care gate passed; `publish` checks the recorded verdict."""
    return next((one.record.digest for one in judged if one.verdict.gate == "care" and one.verdict.passed), None)


def _judge_or_refuse(claim: Claim, name: str, gate: Callable[[], Verdict]) -> Verdict:
    try:
        return gate()
    except KfmError:
        raise
    except Exception as error:  # noqa: BLE001 - a gate that fails to judge refuses
        raise CareRefused(
            f"{claim.key}: the {name} gate failed: {type(error).__name__}; nothing is published"
        ) from None


def _evidence(services: Services, dataset: Dataset, claim: Claim, rules: KeyRules, release: Release) -> Evidence:
    store, layout, place = services.store, Layout(dataset.pipeline), (claim.key, claim.epoch)
    has_crosswalk = rules.masks and rules.footprints is None
    data = store.read(layout.staged_data(*place))
    return Evidence(
        data=data,
        rewrite=partial(rewrite_parquet, data, claim.key),
        item=store.read(layout.staged_item(*place)),
        files={name: store.read(layout.staged_document(*place, name)) for name in release.files},
        documents={name: store.read(layout.staged_document(*place, name)) for name in release.documents},
        records={name: store.read(layout.staged_document(*place, name)) for name in release.records},
        original=store.read(layout.computed_table(*place)) if has_crosswalk else b"",
        crosswalk=store.read(layout.crosswalk(*place)) if has_crosswalk else b"",
        footprints=rules.footprints.shapes if rules.footprints else (),
        reassemble=partial(reassemble, dataset=dataset) if rules.footprints else None,
    )


def _inputs(facts: KeyFacts) -> tuple[AnnouncedInput, ...]:
    """Returns what the events announced and what was fetched, as logged."""
    computed = facts.details.get(Step.COMPUTE, {})
    promised = fetched_inputs(facts.details.get(Step.BEGIN, {}), computed)
    etags, sizes = computed.get("etags", {}), computed.get("sizes", {})
    return tuple(
        AnnouncedInput(one["uri"], one["etag"], one.get("size"), etags.get(one["uri"]), sizes.get(one["uri"]))
        for one in promised
    )


def _exemption_verdict(rules: KeyRules) -> Verdict | None:
    """The rules have already checked the exemption; the verdict names who granted it."""
    if rules.exemption is None:
        return None
    measured = f"exempted by {rules.exemption.signed.holder} until {rules.exemption.until} ({rules.exemption.id})"
    return Verdict("care", (Finding("masked", Severity.WARN, "release", f"policy {rules.policy.name}", measured),))

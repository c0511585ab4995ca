"""Runs the release gates on the staged bytes, their inputs and what the events announced."""

from collections.abc import Callable, Iterator
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
from kfm_pipelines.stages.telemetry.spans import trace_gate
from kfm_pipelines.stages.validate.table_gates import record_gate
from kfm_pipelines.state import wal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.verdicts import verdicts_of
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout


def judge_release(
    services: Services, dataset: Dataset, claim: Claim, rules: KeyRules, release: Release
) -> Iterator[Verdict]:
    """Yields and records verdicts up to the first red one. A gate that cannot finish counts as a refusal."""
    evidence = _evidence(services, Layout(dataset.pipeline), claim, rules, release)
    digest = digest_of(evidence)
    subject = ReleaseSubject(
        dataset=dataset,
        key=claim.key,
        inputs=_inputs(services, claim),
        judged=release.content_hash,
        digests={DATA: release.content_hash, ITEM: release.item_hash, **release.documents, **release.records},
        staged={DATA: evidence.data, ITEM: evidence.item, **evidence.documents, **evidence.records},
        policy=rules.policy.name,
        care=rules.masking_status,
        verified=None,
        digest=digest,
    )
    gates: dict[str, Callable[[], Verdict]] = {
        "integrity": lambda: judge_integrity(subject),
        "care": lambda: _exemption_verdict(rules) or judge_care(rules.policy, dataset, evidence),
        "governance": lambda: judge_governance(replace(subject, verified=_verified_digest(services, claim))),
    }
    for name, gate in gates.items():
        verdict = trace_gate(services, name, partial(_judge_or_refuse, claim, name, gate))
        record_gate(services, dataset, claim, digest, verdict)
        yield verdict
        if not verdict.passed:
            return


def _verified_digest(services: Services, claim: Claim) -> str | None:
    """Returns the digest that the care gate passed in this transaction; `publish` checks the same record."""
    judged = verdicts_of(services.database, claim.key, claim.epoch)
    return next((one.digest for one in judged if one.gate == "care" and one.passed), None)


def _judge_or_refuse(claim: Claim, name: str, gate: Callable[[], Verdict]) -> Verdict:
    try:
        return gate()
    except KfmError:
        raise
    except Exception as error:  # noqa: BLE001 - a gate that fails to judge refuses
        raise CareRefused(
            f"{claim.key}: the {name} gate failed: {type(error).__name__}; nothing is published"
        ) from None


def _evidence(services: Services, layout: Layout, claim: Claim, rules: KeyRules, release: Release) -> Evidence:
    store, place = services.store, (claim.key, claim.epoch)
    data = store.read(layout.staged_data(*place))
    return Evidence(
        data=data,
        rewrite=partial(rewrite_parquet, data, claim.key),
        item=store.read(layout.staged_item(*place)),
        documents={name: store.read(layout.staged_document(*place, name)) for name in release.documents},
        records={name: store.read(layout.staged_document(*place, name)) for name in release.records},
        original=store.read(layout.computed_table(*place)) if rules.masks else b"",
        crosswalk=store.read(layout.crosswalk(*place)) if rules.masks else b"",
    )


def _inputs(services: Services, claim: Claim) -> tuple[AnnouncedInput, ...]:
    """Returns what the events announced and what was fetched, as logged."""
    with services.database.transaction() as connection:
        begun = wal.entry_of(connection, claim.key, claim.epoch, Step.BEGIN)
        computed = wal.entry_of(connection, claim.key, claim.epoch, Step.COMPUTE)
    promised = begun.detail["inputs"] if begun else []
    etags, sizes = (computed.detail.get(name, {}) if computed else {} for name in ("etags", "sizes"))
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

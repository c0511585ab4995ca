"""The CARE gate: the verifier looks at the staged bytes themselves, next to what they were made from."""

from dataclasses import asdict

from kfm_pipelines.care.verifier import Evidence, digest_of
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import CareRefused, KfmError
from kfm_pipelines.gates import Finding, Severity, Verdict, judge_care
from kfm_pipelines.operations.governance import Rules
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.parquet import read_parquet, write_parquet
from kfm_pipelines.stages.stage import Release
from kfm_pipelines.state.claims import Claim
from kfm_pipelines.state.verdicts import record_verdict
from kfm_pipelines.stores import Layout


def judge_staged(workshop: Workshop, dataset: Dataset, claim: Claim, rules: Rules, release: Release) -> Verdict:
    """A verdict that names the digest it is about. A verifier that cannot finish is a refusal."""
    evidence = _evidence(workshop, Layout(dataset.pipeline), claim, rules, release)
    try:
        verdict = _exempted(rules) or judge_care(rules.policy, dataset, evidence)
    except KfmError:
        raise
    except Exception as error:  # noqa: BLE001 - a gate that cannot judge refuses
        raise CareRefused(
            f"{claim.key}: the verifier failed with {type(error).__name__}; nothing is published"
        ) from None
    record_verdict(
        workshop.database,
        claim,
        verdict.gate,
        digest_of(evidence),
        passed=verdict.passed,
        findings=[asdict(finding) for finding in verdict.findings],
    )
    return verdict


def _evidence(workshop: Workshop, layout: Layout, claim: Claim, rules: Rules, release: Release) -> Evidence:
    store, place = workshop.store, (claim.key, claim.epoch)
    data = store.read(layout.staged_data(*place))
    return Evidence(
        data=data,
        rewritten=write_parquet(read_parquet(data, claim.key)) if rules.masks else data,
        item=store.read(layout.staged_item(*place)),
        documents={name: store.read(layout.staged_document(*place, name)) for name in release.documents},
        original=store.read(layout.computed(*place)) if rules.masks else b"",
        crosswalk=store.read(layout.crosswalk(*place)) if rules.masks else b"",
    )


def _exempted(rules: Rules) -> Verdict | None:
    """An exemption has been checked where the rules were made; the verdict says whose word it rests on."""
    if rules.exemption is None:
        return None
    measured = f"exempted by {rules.exemption.signed.holder} until {rules.exemption.until} ({rules.exemption.id})"
    return Verdict("care", (Finding("masked", Severity.WARN, "release", f"policy {rules.policy.name}", measured),))

"""What the audit is told of a key's masking and of asking for its review."""

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.operations.governance import Rules
from kfm_pipelines.stages.mask import Outcome
from kfm_pipelines.state.audit import Action, AuditEntry
from kfm_pipelines.state.claims import Claim


def masking_entry(dataset: Dataset, claim: Claim, rules: Rules, content_hash: str, outcome: Outcome) -> AuditEntry:
    action, detail = Action.MASKED, dict(outcome.measures)
    if rules.exemption is not None:
        action, detail = Action.EXEMPTED, {"exemption": rules.exemption.id, "by": rules.exemption.signed.holder}
    elif not rules.masks:
        action = Action.LEFT_OPEN
    return AuditEntry(
        action,
        f"run {claim.owner}",
        dataset.dataset,
        rules.policy.name,
        key=claim.key,
        txn=claim.epoch,
        digest=content_hash,
        detail=detail,
    )


def asking_entry(dataset: Dataset, claim: Claim, policy: Policy, release_digest: str) -> AuditEntry:
    return AuditEntry(
        Action.REVIEW_ASKED,
        f"run {claim.owner}",
        dataset.dataset,
        policy.name,
        key=claim.key,
        txn=claim.epoch,
        digest=release_digest,
    )

"""The CARE gate: what the independent verifier says of the staged bytes. When it cannot say, it raises, and the caller
publishes nothing."""

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.verifier import Evidence, verify
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates.verdict import Finding, Severity, Verdict


def judge_care(policy: Policy, dataset: Dataset, evidence: Evidence) -> Verdict:
    findings = (
        Finding(breach.rule, Severity.ERROR, breach.subject, breach.expected, breach.measured)
        for breach in verify(policy, dataset, evidence)
    )
    return Verdict("care", tuple(findings))

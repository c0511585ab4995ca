"""Gates: each judges what is about to be published and gives a verdict with findings."""

from kfm_pipelines.declarations.quality import GATES, RELEASE_GATES, TABLE_GATES
from kfm_pipelines.gates.care import judge_care
from kfm_pipelines.gates.governance import judge_governance
from kfm_pipelines.gates.integrity import judge_integrity
from kfm_pipelines.gates.quality import judge_quality
from kfm_pipelines.gates.schema import judge_schema
from kfm_pipelines.gates.subject import AnnouncedInput, ApprovedSchema, Baselines, ReleaseSubject, TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity, Verdict

__all__ = [
    "GATES",
    "RELEASE_GATES",
    "TABLE_GATES",
    "AnnouncedInput",
    "ApprovedSchema",
    "Baselines",
    "Finding",
    "ReleaseSubject",
    "Rule",
    "Severity",
    "TableSubject",
    "Verdict",
    "judge_care",
    "judge_governance",
    "judge_integrity",
    "judge_quality",
    "judge_schema",
]  # fmt: skip

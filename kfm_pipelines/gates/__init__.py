"""Gates: each judges what is about to be published and returns a verdict with findings."""

from kfm_pipelines.declarations.quality import GATES, RELEASE_GATES, TABLE_GATES
from kfm_pipelines.gates.quality.table import judge_quality
from kfm_pipelines.gates.release import judge_care, judge_governance, judge_integrity
from kfm_pipelines.gates.schema import judge_schema
from kfm_pipelines.gates.verdict import (
    AnnouncedInput,
    ApprovedSchema,
    Baselines,
    Finding,
    ReleaseSubject,
    Rule,
    Severity,
    TableSubject,
    Verdict,
)

__all__ = [
    "GATES", "RELEASE_GATES", "TABLE_GATES", "AnnouncedInput", "ApprovedSchema", "Baselines", "Finding",
    "ReleaseSubject", "Rule", "Severity", "TableSubject", "Verdict",
    "judge_care", "judge_governance", "judge_integrity", "judge_quality", "judge_schema",
]  # fmt: skip

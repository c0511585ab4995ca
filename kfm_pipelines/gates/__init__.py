"""Gates: each judges the table that is about to be published and gives a verdict with findings."""

from kfm_pipelines.gates.care import judge_care
from kfm_pipelines.gates.schema import judge_schema
from kfm_pipelines.gates.verdict import Finding, Severity, Verdict

GATES = ("schema",)

__all__ = ["GATES", "Finding", "Severity", "Verdict", "judge_care", "judge_schema"]

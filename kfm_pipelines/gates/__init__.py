"""Gates: each judges what is about to be published and gives a verdict with findings."""

from kfm_pipelines.gates.care import judge_care
from kfm_pipelines.gates.schema import judge_schema
from kfm_pipelines.gates.verdict import Finding, Severity, Verdict

TABLE_GATES = ("schema",)  # judge the table, before it is staged
RELEASE_GATES = ("care",)  # judge what is staged: all of it, to the byte
GATES = TABLE_GATES + RELEASE_GATES

__all__ = [
    "GATES", "RELEASE_GATES", "TABLE_GATES", "Finding", "Severity", "Verdict", "judge_care", "judge_schema"
]  # fmt: skip

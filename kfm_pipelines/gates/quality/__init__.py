"""The QA gate: whether the values make sense, by thresholds that the dataset declares.

Belongs here: one module per idea, each with its rules, and QUALITY_RULES in the order they are judged. Does not: which
columns there are and of which type (`schema`), which is settled before, or suites of Great Expectations
(`expectations`).
"""

from kfm_pipelines.gates.quality.columns import NULL_SHARE, RANGE, STATISTIC
from kfm_pipelines.gates.quality.places import GEOMETRY_VALID, IN_EXTENT
from kfm_pipelines.gates.quality.rows import (
    CHECKSUM_DRIFT,
    NOT_EMPTY,
    PRIMARY_KEY_UNIQUE,
    ROW_COUNT_NEIGHBOURS,
    ROW_COUNT_PREVIOUS,
)
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Rule, Verdict, judge

QUALITY_RULES: tuple[Rule[TableSubject], ...] = (
    NOT_EMPTY,
    PRIMARY_KEY_UNIQUE,
    RANGE,
    STATISTIC,
    NULL_SHARE,
    GEOMETRY_VALID,
    IN_EXTENT,
    ROW_COUNT_PREVIOUS,
    ROW_COUNT_NEIGHBOURS,
    CHECKSUM_DRIFT,
)

__all__ = ["QUALITY_RULES", "judge_quality"]


def judge_quality(subject: TableSubject) -> Verdict:
    """For a table whose columns are as declared."""
    return judge("qa", QUALITY_RULES, subject)

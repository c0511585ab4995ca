"""Mask: a decision for every table, under a policy that is still valid."""

from datetime import date, timedelta

import pytest

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.settings import shipped
from kfm_pipelines.stages.mask import MaskReport, mask
from kfm_pipelines_tests.stages.given import rows

POLICY = load_policy(shipped("resources"), "not-sensitive")


def test_what_is_not_sensitive_stays_as_it_is_and_the_report_says_so() -> None:
    table, report = mask(rows(3), POLICY, POLICY.reviewed_on)
    assert table.equals(rows(3))
    assert report == MaskReport("not-sensitive@2", 3)


def test_no_table_passes_under_a_policy_whose_review_is_overdue() -> None:
    mask(rows(), POLICY, POLICY.review_by)
    for late in (POLICY.review_by + timedelta(days=1), date.max):
        with pytest.raises(PolicyRefused, match=f"not-sensitive@2 was due for review by {POLICY.review_by}"):
            mask(rows(), POLICY, late)

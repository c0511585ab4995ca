"""Masking: open data stays unchanged, and a failure reveals nothing."""

import pytest

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.mask import mask
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.tables import DATASET, rows

POLICY = load_policy(shipped_path("resources"), "not-sensitive")


def test_open_data_stays_unchanged() -> None:
    outcome = mask(rows(3), DATASET, POLICY, b"")
    assert outcome.table.equals(rows(3))
    assert (outcome.crosswalk, outcome.measures) == (None, {})


def test_a_failure_reveals_no_value_of_the_data() -> None:
    """A table of another dataset, to make it fail."""
    heritage = load_policy(shipped_path("resources"), "heritage-sites")
    with pytest.raises(PolicyRefused) as refused:
        mask(rows(3), declared()["heritage/sites"], heritage, b"k" * 32)
    assert not any(value in str(refused.value) for value in ("38.", "97.", "0686650", "Smoky"))
    assert refused.value.__cause__ is None

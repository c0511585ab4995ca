"""Mask: a decision for every table; what fails lets nothing out."""

import pytest

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.mask import mask
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.tables import DATASET, rows

POLICY = load_policy(shipped_path("resources"), "not-sensitive")


def test_what_is_not_sensitive_stays_as_it_is() -> None:
    outcome = mask(rows(3), DATASET, POLICY, b"")
    assert outcome.table.equals(rows(3))
    assert (outcome.crosswalk, outcome.measures) == (None, {})


def test_a_masker_that_fails_says_neither_what_nor_where() -> None:
    """A table of another dataset, to make it fail."""
    heritage = load_policy(shipped_path("resources"), "heritage-sites")
    with pytest.raises(PolicyRefused) as refused:
        mask(rows(3), declared()["heritage/sites"], heritage, b"k" * 32)
    assert not any(value in str(refused.value) for value in ("38.", "97.", "0686650", "Smoky"))
    assert refused.value.__cause__ is None

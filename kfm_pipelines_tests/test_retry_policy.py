"""How long to wait: anywhere from nothing to a ceiling that doubles up to a cap."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.retry_policy import RetryPolicy

POLICY = RetryPolicy(max_attempts=7, base_seconds=2.0)


@given(attempt=st.integers(1, 10**9), seed=st.integers())
def test_a_wait_is_never_negative_and_never_above_its_ceiling(attempt: int, seed: int) -> None:
    ceiling = min(300.0, 2.0 * 2.0 ** min(attempt, 20))
    assert 0 <= POLICY.delay(attempt, Random(seed)) <= ceiling


@given(
    attempt=st.integers(1, 60),
    seed=st.integers(),
    base=st.floats(0.01, 60, allow_nan=False),
    cap=st.floats(0.01, 3600, allow_nan=False),
)
def test_a_wait_is_the_uniform_draw_under_the_ceiling(attempt: int, seed: int, base: float, cap: float) -> None:
    policy = RetryPolicy(7, base_seconds=base, cap_seconds=cap)
    assert policy.delay(attempt, Random(seed)) == Random(seed).uniform(0, min(cap, base * 2**attempt))


@pytest.mark.parametrize(
    ("attempt", "ceiling"), [(1, 4), (2, 8), (3, 16), (7, 256), (8, 300), (100, 300), (10**9, 300)]
)
def test_waits_are_spread_over_the_whole_range(attempt: int, ceiling: float) -> None:
    random = Random(0)
    waits = [POLICY.delay(attempt, random) for _ in range(2000)]
    assert min(waits) < 0.01 * ceiling
    assert 0.99 * ceiling < max(waits) <= ceiling
    assert sum(waits) / len(waits) == pytest.approx(ceiling / 2, rel=0.05)


def test_the_same_random_numbers_give_the_same_wait() -> None:
    assert POLICY.delay(3, Random(5)) == POLICY.delay(3, Random(5))


def test_the_last_attempt_is_the_last() -> None:
    assert [attempt for attempt in range(1, 10) if POLICY.is_exhausted(attempt)] == [7, 8, 9]

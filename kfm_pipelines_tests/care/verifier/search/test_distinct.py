"""Distinct numbers and their counts, found by marking, counting or sorting, whichever is faster."""

import numpy as np
import numpy.typing as npt
import pytest

from kfm_pipelines.care.verifier.search.distinct import count_distinct, distinct


def numbers(rng: np.random.Generator, kind: str) -> npt.NDArray[np.int64]:
    lowest, highest = {"dense": (0, 300), "sparse": (0, 2**60), "negative": (-5, 5)}[kind]
    return rng.integers(lowest, highest, int(rng.integers(0, 500)))


@pytest.mark.parametrize("kind", ["dense", "sparse", "negative"])
@pytest.mark.parametrize("seed", range(5))
def test_distinct_numbers_are_sorted(seed: int, kind: str) -> None:
    values = numbers(np.random.default_rng(seed), kind)
    assert distinct(values).tolist() == sorted(set(values.tolist()))


@pytest.mark.parametrize("features", ["all different", "some alike", "none"])
@pytest.mark.parametrize("seed", range(5))
def test_a_feature_counts_once_in_each_group(seed: int, features: str) -> None:
    rng = np.random.default_rng(seed)
    size = 0 if features == "none" else 200
    groups = rng.integers(0, 9, size)
    ids = rng.permutation(size) if features == "all different" else rng.integers(0, 30, size)
    expected = [len(set(ids[groups == group].tolist())) for group in range(10)]
    assert count_distinct(groups, ids, 10).tolist() == expected

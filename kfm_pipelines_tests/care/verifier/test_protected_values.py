"""Numbers that match a protected place."""

import numpy as np
import numpy.typing as npt
import pytest

from kfm_pipelines.care.verifier.protected_values import ProtectedPlaces


def some_places(seed: int) -> "tuple[npt.NDArray[np.float64], ...]":
    rng = np.random.default_rng(seed)
    parts = (rng.uniform(-102, -94, 200), rng.uniform(37, 40, 200), np.append(rng.uniform(1e5, 5e6, 200), [0.0, 38.5]))
    return tuple(np.sort(part) for part in parts)


@pytest.mark.parametrize("seed", range(8))
def test_only_numbers_with_enough_digits_match_a_place(seed: int) -> None:
    places, rng = some_places(seed), np.random.default_rng(seed)
    every = np.concatenate(places)
    values = np.concatenate([rng.choice(every, 50), rng.uniform(-102, 40, 50), [np.nan, 0.0, 38.5]])
    values = np.repeat(values, rng.integers(1, 4, len(values)))  # as the centres of cells do
    precise = every[np.round(every, 5) != every]
    assert ProtectedPlaces(*places).count_matches(values) == int(np.isin(values, precise).sum()) > 0

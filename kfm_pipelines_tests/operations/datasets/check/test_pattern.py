"""What an object_pattern can match, told without an object."""

import re

import pytest

from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.operations.datasets.check.pattern import can_begin_with, example_of
from kfm_pipelines.settings import shipped_path

DATASETS = load_datasets(shipped_path("resources"))


@pytest.mark.parametrize("name", DATASETS)
def test_patterns_in_use_fit_their_prefixes_and_have_examples(name: str) -> None:
    given = DATASETS[name].input
    assert can_begin_with(given.object_pattern, given.prefix)
    example = example_of(given.object_pattern)
    assert example is not None
    assert example.startswith(given.prefix)
    assert re.fullmatch(given.object_pattern, example)


@pytest.mark.parametrize(
    ("pattern", "prefix", "fits"),
    [
        (r"usgs/(?P<year>\d{4})", "usgs/", True),
        (r"usgs/(?P<year>\d{4})", "usgs/20", True),
        (r"usgs/(?P<year>\d{4})", "usgs/x", False),
        (r"(?P<year>\d{4})/x", "usgs/", False),
        (r"usgs/flow", "usgs/flow/", False),
        (r"[a-z]+/[a-z-]+/x", "usgs/flow-day/", True),
        (r"[a-z]+/x", "usgs/flow/", False),
        (r"(a|usgs)/s/\d", "usgs/s/", True),
        (r"(a|b)/s/\d", "usgs/s/", False),
        (r"(x/)?usgs/\d", "usgs/", True),
        (r"[^/]+/\d", "usgs/s/", False),
        (r".*\.parquet", "usgs/s/", True),
        (r"(\w+)/\1/\d", "usgs/usgs/", True),
        (r"[a-z]{2}/\d", "usgs/", False),
        (r"x", "", True),
    ],
)
def test_a_pattern_fits_a_prefix_if_some_name_has_both(pattern: str, prefix: str, fits: bool) -> None:
    assert can_begin_with(pattern, prefix) is fits


def test_an_example_repeats_what_a_reference_asks_for() -> None:
    assert example_of(r"(?P<year>\d{4})/a_(?P=year)-[^a-z]\.(csv|txt)") == "2025/a_2025-0.csv"
    assert example_of(r"a(?!b)") is None or example_of(r"a(?!b)") == "a"

"""Rules on kept columns: each one broken once, and nothing else found."""

import pytest

from kfm_pipelines_tests.fixtures.care.honest_releases import register_release
from kfm_pipelines_tests.fixtures.care.tampering import Change, rules_of

KEPT: dict[str, tuple[Change, str]] = {
    "another value": (lambda r: r.of("withheld")[0].values.update(condition="poor"), "kept-values"),
    "no value": (lambda r: r.of("generalised")[0].values.update(depth_m=None), "kept-values"),
    "a value where there was none": (lambda r: r.rows[r.of("open")[0].rows[0]].update(depth_m=None), "kept-values"),
    "something of single records": (lambda r: r.of("restricted")[0].values.update(condition="good"), "group-values"),
    "a group of another period": (lambda r: r.of("restricted")[0].values.update(period="Archaic"), "group-values"),
    "two periods in a group": (
        lambda r: r.rows[r.of("restricted")[1].rows[0]].update(period="Archaic"),
        "group-values",
    ),
    "a remainder of one period": (lambda r: r.of("restricted")[4].values.update(period="Woodland"), "group-values"),
}


@pytest.mark.parametrize(("change", "rule"), KEPT.values(), ids=KEPT)
def test_a_changed_kept_value_breaks_one_rule(change: Change, rule: str) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == {rule}


def test_nan_equals_nan() -> None:
    release = register_release()
    record = release.of("withheld")[0]
    release.rows[record.rows[0]]["depth_m"] = record.values["depth_m"] = float("nan")
    assert rules_of(release) == set()

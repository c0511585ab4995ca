"""Every finding of a gate or a scan has a remedy."""

import pytest

from kfm_pipelines.gates.published_release import PUBLISHED_RULES
from kfm_pipelines.gates.remedies import remedy_of


@pytest.mark.parametrize(
    ("gate", "rule"),
    [
        *(("published", rule.name) for rule in PUBLISHED_RULES),
        ("published", "published-judged"),
        ("extents", "extent-drift"),
        ("extents", "item-readable"),
        ("deep", "gx:whatever"),
        ("qa", "gx:whatever"),
    ],
)
def test_a_finding_has_a_remedy(gate: str, rule: str) -> None:
    assert len(remedy_of(gate, rule)) > 40
    assert remedy_of(gate, rule).endswith(".")

"""Findings about overlaps and gaps have counts, and rows only where they may be seen."""

from dataclasses import replace

import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.gates.quality.table import RULES_BEFORE_MASKING
from kfm_pipelines.gates.verdict import judge
from kfm_pipelines.vector import topology
from kfm_pipelines_tests.fixtures.gates.subjects import layer_of, only, released

RULE = {"overlaps": "error", "gaps": "warn"}
STACKED = [shapely.box(0, 0, 1, 1), shapely.box(0, 0, 1, 1), shapely.box(0.5, 0, 1.5, 1), shapely.box(5, 5, 6, 6)]


def test_a_finding_has_the_count_and_where_allowed_the_rows() -> None:
    found = only(layer_of(*STACKED, topology=RULE))
    assert str(found) == "outline: expected shapes that have at most 10 m2 in common, found 3 pairs with more"
    assert found.sample == "number=1; number=2; number=3"
    assert only(layer_of(*STACKED, topology=RULE, may_sample=False)).sample == ""


def test_a_masked_table_is_judged_before_it_is_masked() -> None:
    layer = layer_of(*STACKED, topology=RULE)
    assert [one.rule for one in judge("schema", RULES_BEFORE_MASKING, layer).findings] == ["overlaps"]
    masked = replace(layer, published=layer.published.model_copy(update={"time_column": "another"}))
    assert judge("qa", RULES_BEFORE_MASKING, masked).findings == ()


def test_shapes_of_different_times_may_overlap() -> None:
    layer = layer_of(STACKED[0], STACKED[0], topology=RULE)
    dated = layer.dataset.table.model_copy(update={"time_column": "at"})
    days = [pa.array(values, pa.date32()) for values in ([0, 0], [0, 1], [None, None])]
    counts = []
    for values in days:
        dataset = layer.dataset.model_copy(update={"table": dated})
        table = layer.table.append_column("at", values)
        judged = replace(layer, dataset=dataset, published=dated, table=table)
        counts.append(len(judge("qa", RULES_BEFORE_MASKING, judged).findings))
    assert counts == [1, 0, 1]


def test_a_finding_names_what_was_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_MOST_VERTICES_JOINED", 5)
    monkeypatch.setattr(topology, "_MOST_VERTICES", 5)
    layer = layer_of(STACKED[0], STACKED[3], STACKED[2], topology=RULE)
    measured = [one.measured for one in judge("qa", RULES_BEFORE_MASKING, layer).findings]
    assert measured == ["0 pairs with more, and too many shapes to compare all", "too many vertices, so not judged"]


@pytest.mark.parametrize("name", ["usda/soils", "land/parcels"])
def test_the_samples_keep_the_rules_of_their_dataset(name: str) -> None:
    sample = released(name)
    assert sample.dataset.quality.topology is not None
    assert judge("qa", RULES_BEFORE_MASKING, sample).findings == ()

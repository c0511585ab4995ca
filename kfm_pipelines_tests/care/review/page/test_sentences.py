"""Rules and measures are explained in plain English."""

import pytest

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.review.page.content import RuleSentence
from kfm_pipelines.care.review.page.sentences import measure_rows, rule_sentences  # fmt: skip
from kfm_pipelines.care.rules import ClassRules
from kfm_pipelines_tests.fixtures.care.review_page import MEASURES, RESOURCES, cell_near, policy

HERE, THERE = cell_near(-98, 38.5), cell_near(-96, 39)


def test_rules_are_plain_sentences() -> None:
    sentences = rule_sentences(policy())
    assert [(rule.sensitivity, rule.kind) for rule in sentences] == [
        ("generalised", "point"),
        ("restricted", "point"),
        ("withheld", "point"),
    ]
    assert sentences[0].sentence.startswith("The place becomes a hexagon of about 250 km² (H3 resolution 5).")
    assert "hexagons of about 12,000 km² (H3 resolution 3) and 1,800 km² (H3 resolution 4)" in sentences[1].sentence
    assert "rounded down to a multiple of 5" in sentences[1].sentence


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"point": {"method": "none"}}, "The place is published as it is."),
        ({"point": {"method": "omit"}}, "The record is neither published nor counted."),
        (
            {"point": {"method": "displace", "min_m": 500.0, "max_m": 2500.0, "reason": "wells"}},
            "The point is moved by 500 m to 2.5 km, in a direction and by a distance derived from the secret key. "
            "Reason: wells",
        ),
        (
            {"raster": {"method": "nodata", "resolution": 7}},
            "Cells under a footprint, widened to a hexagon of about 5 km², are left empty.",
        ),
    ],
)
def test_every_method_has_its_sentence(rule: dict[str, object], sentence: str) -> None:
    changed = policy().model_copy(update={"classes": {"generalised": ClassRules.model_validate(rule)}})
    assert [sentences.sentence for sentences in rule_sentences(changed)] == [sentence]


def test_an_open_policy_is_one_sentence() -> None:
    assert rule_sentences(load_policy(RESOURCES, "not-sensitive")) == [
        RuleSentence("open", "any", "Published as it is.")
    ]


def test_measures_are_explained_and_have_units() -> None:
    rows = {row.name: row for row in measure_rows(MEASURES)}
    assert rows["Still in the same region"].value == "93%"
    assert rows["Largest uncertainty"].value == "78 km"
    assert rows["Distance points were moved"].value == "3.12 km"
    assert "between 1.51 km and 4.87 km" in rows["Distance points were moved"].explanation
    assert all(row.explanation for row in rows.values())


def test_an_undisclosed_measure_has_a_reason() -> None:
    [row] = measure_rows({"rows_in": None})
    assert row.value == "not disclosed"
    assert "too few records" in row.explanation


def test_an_unknown_measure_is_listed_by_its_name() -> None:
    assert [(row.name, row.value) for row in measure_rows({"new_one": 1234, "rows_out": 1})] == [
        ("Rows published", "1"),
        ("new_one", "1,234"),
    ]

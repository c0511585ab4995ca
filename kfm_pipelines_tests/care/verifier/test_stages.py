"""Every rule of the verifier is needed: without it, a tampering that another test finds goes unnoticed."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kfm_pipelines.care.verifier import Breach, stages
from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.rules import (
    columns,
    counts,
    crosswalk,
    disguised_places,
    displacement,
    file_bytes,
    item,
    item_binding,
    kept_columns,
    leaks,
    places,
)
from kfm_pipelines.care.verifier.stages import STAGES, VerifierRule
from kfm_pipelines_tests.care.verifier.rules import (
    test_columns,
    test_counts,
    test_crosswalk,
    test_disguised_places,
    test_displacement,
    test_file_bytes,
    test_item,
    test_item_binding,
    test_kept_columns,
    test_leaks,
    test_places,
)
from kfm_pipelines_tests.fixtures.care.honest_releases import register_release
from kfm_pipelines_tests.fixtures.care.leaked_values import DOCUMENTS
from kfm_pipelines_tests.fixtures.care.tampering import breaches_of

Finds = Callable[[], None]


def case(test: Callable[..., None], cases: Mapping[str, Any], name: str, **more: Any) -> Finds:
    """Returns one case of a parametrized test."""
    values = cases[name] if isinstance(cases[name], tuple) else (cases[name],)
    return lambda: test(*values, **more)


def forged(name: str) -> Finds:
    return case(test_columns.test_a_forged_file_breaks_one_rule, test_columns.FORGED, name)


def crosswalk_case(name: str) -> Finds:
    return case(test_crosswalk.test_a_changed_crosswalk_breaks_one_rule, test_crosswalk.RECORDS, name)


def count_case(name: str) -> Finds:
    return case(test_counts.test_a_changed_count_breaks_one_rule, test_counts.COUNTS, name)


def displaced(name: str) -> Finds:
    return case(test_displacement.test_a_changed_displacement_breaks_one_rule, test_displacement.DISPLACED, name)


def in_bytes(name: str) -> Finds:
    return case(test_file_bytes.test_bytes_that_no_reader_sees_are_checked, test_file_bytes.HIDDEN, name, offset=3)


def in_text(name: str) -> Finds:
    return case(test_leaks.test_a_protected_value_in_a_kept_text_is_found, test_leaks.TEXTS, name)


def item_case(name: str) -> Finds:
    return case(test_item.test_a_changed_item_breaks_one_rule, test_item.ITEM, name)


def binding_case(name: str) -> Finds:
    return case(test_item_binding.test_an_item_for_other_data_is_found, test_item_binding.ITEM, name)


FINDS: dict[VerifierRule, Finds] = {
    columns.columns_are_allowed: forged("another place column"),
    columns.types_are_declared: forged("another type"),
    columns.withheld_columns_use_wording: forged("a blank"),
    columns.classes_are_known: crosswalk_case("a class without rules"),
    columns.records_are_numbered: forged("numbers from 0"),
    columns.rows_are_in_order: forged("rows in another order"),
    crosswalk.links_point_to_existing_rows: case(
        test_crosswalk.test_a_link_to_nowhere_is_found, test_crosswalk.LINKS, "a record before the first"
    ),
    crosswalk.links_are_complete: crosswalk_case("a record from nowhere"),
    crosswalk.classes_agree: crosswalk_case("a record of another class"),
    crosswalk.records_have_one_rule: test_crosswalk.test_a_record_has_one_rule,
    crosswalk.rows_are_linked_once: crosswalk_case("a group published twice"),
    crosswalk.rows_are_left_out_by_rule: crosswalk_case("a coarse group left out"),
    places.places_follow_the_rule: displaced("a cell"),
    places.counts_follow_the_rule: case(
        test_places.test_a_changed_place_breaks_one_rule, test_places.PLACES, "a record that counts twice"
    ),
    counts.cells_reach_minimum: count_case("four features in a cell"),
    counts.records_without_place_reach_minimum: count_case("four features that lost theirs"),
    counts.counts_match_features: count_case("too high a count"),
    counts.overlaps_reach_minimum: count_case("two resolutions that isolate one feature"),
    counts.remainder_combines_several_groups: count_case("a remainder of one group"),
    counts.places_are_in_their_cells: count_case("a place in another cell"),
    counts.cell_counts_are_multiples: count_case("eight features in a cell"),
    displacement.distances_are_in_the_ring: displaced("no place"),
    displacement.moves_have_no_pattern: displaced("all as far"),
    displacement.features_move_as_one: displaced("a feature as far another way"),
    kept_columns.kept_values_match_source_rows: case(
        test_kept_columns.test_a_changed_kept_value_breaks_one_rule,
        test_kept_columns.KEPT,
        "a group of another period",
    ),
    leaks.numbers_are_not_places: case(
        test_leaks.test_a_place_in_a_kept_number_is_found, test_leaks.NUMBERS, "its own easting"
    ),
    leaks.texts_hold_nothing_withheld: in_text("a name with other signs between"),
    leaks.texts_hold_no_coordinates: in_text("a fine cell"),
    leaks.documents_hold_nothing_protected: case(
        test_leaks.test_a_protected_value_in_a_document_is_found, DOCUMENTS, "a name"
    ),
    disguised_places.kept_columns_are_no_places: case(
        test_disguised_places.test_a_kept_number_that_follows_the_place_is_found,
        test_disguised_places.NUMBERS,
        "two decimals",
    ),
    disguised_places.kept_texts_reveal_no_place: case(
        test_disguised_places.test_one_kept_text_with_its_own_place_is_found, test_disguised_places.TEXTS, "a geohash"
    ),
    file_bytes.statistics_match_published_rows: test_file_bytes.test_statistics_of_other_rows_are_found,
    file_bytes.boxes_match_published_shapes: case(
        test_file_bytes.test_other_boxes_are_found, test_file_bytes.BOXES, "moved"
    ),
    file_bytes.metadata_holds_nothing_protected: case(
        test_file_bytes.test_a_protected_value_in_the_files_metadata_is_found, DOCUMENTS, "a fine cell"
    ),
    file_bytes.bytes_hold_no_coordinate: in_bytes("a longitude"),
    file_bytes.footer_holds_no_text: in_bytes("a name"),
    file_bytes.bytes_are_canonical: case(
        test_file_bytes.test_bytes_that_no_row_needs_are_found, test_file_bytes.FORGED, "bytes before the footer"
    ),
    item.item_names_the_policy: item_case("no labels"),
    item.item_has_warning: item_case("no warning"),
    item.item_bbox_matches_published_places: item_case("no box"),
    item.geo_metadata_bbox_matches_published_places: lambda: (
        test_item.test_a_wrong_bounding_box_in_the_geo_metadata_is_found("[]")
    ),
    item_binding.item_describes_data: binding_case("another size"),
    item_binding.item_describes_provenance: binding_case("no provenance"),
    item_binding.item_links_only_published: binding_case("a link to the inside"),
    item_binding.item_states_place_precision: binding_case("no size"),
    item_binding.no_digest_of_original_is_published: case(
        test_item_binding.test_a_digest_of_an_unpublished_file_is_found, test_item_binding.SPELT, "MD5", part="original"
    ),
}


def test_breaches_are_in_the_order_of_the_rules_however_long_each_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(number: int) -> VerifierRule:
        def check(_: Case) -> Iterator[Breach]:
            time.sleep(0.02 * (3 - number))
            yield Breach(f"rule {number}", "data", "this", "that")

        return check

    monkeypatch.setattr(stages, "STAGES", (tuple(map(rule, range(3))), (rule(3),)))
    assert [breach.rule for breach in breaches_of(register_release())] == ["rule 0", "rule 1", "rule 2"]


def test_every_rule_has_a_tampering() -> None:
    assert set(FINDS) == {rule for stage in STAGES for rule in stage}


@pytest.mark.parametrize("rule", FINDS, ids=lambda rule: rule.__name__)
def test_each_rule_alone_finds_its_tampering(rule: VerifierRule, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(tuple(one for one in stage if one is not rule) for stage in STAGES)
    assert sum(map(len, others)) == sum(map(len, STAGES)) - 1
    FINDS[rule]()
    monkeypatch.setattr(stages, "STAGES", others)
    # Links to nowhere make the next rule raise instead of reporting a breach.
    with pytest.raises(ValueError if rule is crosswalk.links_point_to_existing_rows else AssertionError):
        FINDS[rule]()

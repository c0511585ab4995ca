"""Every rule of the verifier is needed: with it left out, what another test has found is found no longer."""

from collections.abc import Callable

import pytest

from kfm_pipelines.care.verifier import stages
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
from kfm_pipelines_tests.care.verifier.rules import test_columns_and_crosswalk as of_rows
from kfm_pipelines_tests.care.verifier.rules import test_disguised_places as in_disguise
from kfm_pipelines_tests.care.verifier.rules import test_item_binding as tied
from kfm_pipelines_tests.care.verifier.rules import test_leaks as leaking
from kfm_pipelines_tests.care.verifier.rules import test_places as placing

Finds = Callable[[], None]


def forged(case: str) -> Finds:
    return lambda: of_rows.test_each_rule_of_the_file_is_found_broken(*of_rows.FORGED[case])


def recorded(case: str) -> Finds:
    return lambda: of_rows.test_each_rule_of_the_crosswalk_is_found_broken(*of_rows.RECORDS[case])


def placed(case: str) -> Finds:
    return lambda: placing.test_each_rule_of_places_and_counts_is_found_broken(*placing.REGISTER[case])


def displaced(case: str) -> Finds:
    return lambda: placing.test_each_rule_of_displacement_is_found_broken(*placing.DISPLACED[case])


def in_bytes(case: str) -> Finds:
    return lambda: leaking.test_bytes_that_no_reader_looks_at_are_looked_at(*leaking.HIDDEN[case], offset=3)


def in_text(case: str) -> Finds:
    return lambda: leaking.test_kept_texts_hold_nothing_protected(*leaking.TEXTS[case])


def in_item(case: str) -> Finds:
    return lambda: leaking.test_each_rule_of_the_item_is_found_broken(*leaking.ITEM[case])


def of_item(case: str) -> Finds:
    return lambda: tied.test_an_item_of_something_else_is_found(*tied.ITEM[case])


FINDS: dict[VerifierRule, Finds] = {
    columns.columns_are_allowed: forged("another place column"),
    columns.types_are_declared: forged("another type"),
    columns.withheld_columns_use_wording: forged("a blank"),
    columns.classes_are_known: recorded("a class without rules"),
    columns.records_are_numbered: forged("numbers from 0"),
    columns.rows_are_in_order: forged("rows in another order"),
    crosswalk.links_point_to_existing_rows: forged("a record before the first"),
    crosswalk.links_are_complete: recorded("a record from nowhere"),
    crosswalk.classes_agree: recorded("a record of another class"),
    crosswalk.records_have_one_rule: of_rows.test_a_record_comes_under_one_rule,
    crosswalk.rows_are_linked_once: recorded("a group told twice"),
    crosswalk.rows_are_left_out_by_rule: recorded("a coarse group left out"),
    places.places_follow_the_rule: displaced("a cell"),
    places.counts_follow_the_rule: placed("a record that counts twice"),
    counts.cells_reach_minimum: placed("four features in a cell"),
    counts.records_without_place_reach_minimum: placed("four features that lost theirs"),
    counts.counts_match_features: placed("too high a count"),
    counts.overlaps_reach_minimum: placed("two resolutions that tell one apart"),
    counts.remainder_combines_several_groups: placed("a remainder of one group"),
    counts.places_are_in_their_cells: placed("a place in another cell"),
    counts.cell_counts_are_multiples: placed("eight features in a cell"),
    displacement.distances_are_in_the_ring: displaced("no place"),
    displacement.moves_have_no_pattern: displaced("all as far"),
    displacement.features_move_as_one: displaced("a feature as far another way"),
    kept_columns.kept_values_match_source_rows: lambda: of_rows.test_each_rule_of_kept_columns_is_found_broken(
        *of_rows.KEPT["a group of another period"]
    ),
    leaks.numbers_are_not_places: lambda: leaking.test_kept_numbers_are_no_places(*leaking.NUMBERS["its own easting"]),
    leaks.texts_hold_nothing_withheld: in_text("a name with other signs between"),
    leaks.texts_hold_no_coordinates: in_text("a fine cell"),
    leaks.documents_hold_nothing_protected: lambda: leaking.test_documents_hold_nothing_protected(
        *leaking.DOCUMENTS["a name"]
    ),
    disguised_places.kept_columns_are_no_places: lambda: in_disguise.test_a_kept_number_does_not_follow_the_place(
        in_disguise.NUMBERS["two decimals"]
    ),
    disguised_places.kept_texts_reveal_no_place: lambda: (
        in_disguise.test_one_kept_text_does_not_tell_its_place_in_other_words(in_disguise.TEXTS["a geohash"])
    ),
    file_bytes.statistics_match_published_rows: leaking.test_statistics_are_those_of_the_published_rows,
    file_bytes.metadata_holds_nothing_protected: lambda: leaking.test_the_files_metadata_holds_nothing_protected(
        *leaking.DOCUMENTS["a fine cell"]
    ),
    file_bytes.bytes_hold_no_coordinate: in_bytes("a longitude"),
    file_bytes.footer_holds_no_text: in_bytes("a name"),
    file_bytes.bytes_are_canonical: lambda: tied.test_bytes_of_no_row_are_found(tied.FORGED["bytes before the footer"]),
    item.item_names_the_policy: in_item("no labels"),
    item.item_has_warning: in_item("no warning"),
    item.item_bbox_matches_published_places: in_item("no box"),
    item.geo_metadata_bbox_matches_published_places: lambda: leaking.test_the_files_own_box_is_that_of_the_published(
        "[]"
    ),
    item_binding.item_describes_data: of_item("another size"),
    item_binding.item_describes_provenance: of_item("no provenance"),
    item_binding.item_links_only_published: of_item("a link to the inside"),
    item_binding.item_states_place_precision: of_item("no size"),
    item_binding.no_digest_of_original_is_published: lambda: tied.test_no_digest_of_what_is_not_published_gets_out(
        tied.SPELT["MD5"], "original"
    ),
}


def test_every_rule_has_a_tampering() -> None:
    assert set(FINDS) == {rule for stage in STAGES for rule in stage}


@pytest.mark.parametrize("rule", FINDS, ids=lambda rule: rule.__name__)
def test_without_the_rule_it_would_not_be_found(rule: VerifierRule, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(tuple(one for one in stage if one is not rule) for stage in STAGES)
    assert sum(map(len, others)) == sum(map(len, STAGES)) - 1
    FINDS[rule]()
    monkeypatch.setattr(stages, "STAGES", others)
    # Links that lead nowhere make the next rule fail instead: nobody would be told what is wrong.
    with pytest.raises(ValueError if rule is crosswalk.links_point_to_existing_rows else AssertionError):
        FINDS[rule]()

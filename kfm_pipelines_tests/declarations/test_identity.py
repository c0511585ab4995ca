"""Boxes on the map: the one around several is as wide as all of them together."""

from kfm_pipelines.declarations.identity import box_from, union


def test_a_union_reaches_as_far_as_any_of_its_boxes_on_each_side() -> None:
    assert union([(-100.0, 38.0, -97.0, 39.0), None, (-99.0, 37.0, -95.0, 38.5)]) == (-100.0, 37.0, -95.0, 39.0)


def test_what_has_no_place_has_no_box() -> None:
    assert union([]) is union([None]) is box_from(None) is box_from([]) is None


def test_a_box_is_read_from_a_list() -> None:
    assert box_from([-100.0, 38.0, -97.0, 39.0]) == (-100.0, 38.0, -97.0, 39.0)

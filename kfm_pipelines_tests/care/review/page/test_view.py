"""Releases are compared by cell, and the first rows are sampled."""

import pyarrow as pa
import shapely

from kfm_pipelines.care.review.page.content import CellChange
from kfm_pipelines.care.review.page.view import compare_releases, sample_rows
from kfm_pipelines_tests.fixtures.care.review_page import cell_near, in_cell, policy, release, released

HERE, THERE = cell_near(-98, 38.5), cell_near(-96, 39)


def test_the_first_release_differs_from_nothing() -> None:
    assert compare_releases(None, release()) is None


def test_the_same_rows_in_another_order_do_not_differ() -> None:
    table = release()
    shuffled = table.take(list(reversed(range(table.num_rows))))
    found = compare_releases(shuffled, table)
    assert found is not None
    assert found.is_none


def test_rows_are_compared_cell_by_cell_and_not_by_their_number() -> None:
    previous = released(in_cell(HERE, period="Archaic"), in_cell(THERE, records=10), in_cell(THERE, records=10))
    current = released({}, in_cell(HERE, period="Archaic"), in_cell(HERE), in_cell(THERE, records=15))
    found = compare_releases(previous, current)
    assert found is not None
    assert (found.rows_before, found.rows_after) == (3, 4)
    assert (found.records_before, found.records_after) == (21, 18)
    assert found.cells == (
        CellChange(THERE, added=0, removed=1, changed=1, records_before=20, records_after=15),
        CellChange(HERE, added=1, removed=0, changed=0, records_before=1, records_after=2),
        CellChange(None, added=1, removed=0, changed=0, records_before=0, records_after=1),
    )


def test_a_duplicated_row_was_added_once() -> None:
    found = compare_releases(released(in_cell(HERE)), released(in_cell(HERE), in_cell(HERE)))
    assert found is not None
    assert [(cell.added, cell.removed, cell.changed) for cell in found.cells] == [(1, 0, 0)]


def test_added_and_removed_columns_are_named_and_the_others_compared() -> None:
    current = released(in_cell(HERE))
    previous = current.drop_columns(["period"]).append_column("elevation", pa.array([1.0]))
    found = compare_releases(previous, current)
    assert found is not None
    assert (found.columns_added, found.columns_removed, found.cells) == (("period",), ("elevation",), ())


def test_a_column_of_another_type_is_another_column() -> None:
    current = released(in_cell(HERE))
    number = current.schema.get_field_index("period")
    found = compare_releases(current.set_column(number, "period", pa.array([7])), current)
    assert found is not None
    assert (found.columns_added, found.columns_removed) == (("period",), ("period",))


def test_tables_of_different_nullability_can_be_compared() -> None:
    table = released(in_cell(HERE))
    strict = table.cast(pa.schema([table.schema.field(0).with_nullable(nullable=False), *list(table.schema)[1:]]))
    found = compare_releases(strict, table.replace_schema_metadata({"made": "later"}))
    assert found is not None
    assert found.is_none


def test_columns_that_only_repeat_the_wording_are_named_instead() -> None:
    sample = sample_rows(release(), wording=policy().wording, rows=3)
    assert sample.only_wording == ("site_id", "site_name", "site_type", "land_owner", "surveyed_on")
    assert [column.name for column in sample.columns][-2:] == ["period", "condition"]
    assert (len(sample.rows), sample.rows_in_all) == (3, release().num_rows)


def test_a_withheld_column_with_other_text_is_sampled() -> None:
    sample = sample_rows(released({}, {"land_owner": "somebody"}), wording=policy().wording)
    assert "land_owner" not in sample.only_wording
    assert "somebody" in sample.rows[1]


def test_values_are_formatted_for_people() -> None:
    table = pa.table(
        {"shape": [shapely.to_wkb(shapely.Point(1, 2)), b"broken"], "share": [-98.0, 0.123456], "word": [None, "a"]}
    )
    assert sample_rows(table, wording=None).rows == (("Point", "-98", "–"), ("not a geometry", "0.12346", "a"))

"""Rules against leaks: every way in which a place, a name or an id could be published."""

from dataclasses import replace

import pytest

from kfm_pipelines_tests.fixtures.care.handmade_releases import Release
from kfm_pipelines_tests.fixtures.care.honest_releases import displaced_release, register_release
from kfm_pipelines_tests.fixtures.care.leaked_values import DOCUMENTS, NAME, Leak, cell_of, hidden, leak_from
from kfm_pipelines_tests.fixtures.care.tampering import Change, breaches_of, rules_of


def keep(release: Release, column: str, value: object, sensitivity: str = "withheld", which: int = 0) -> None:
    """Sets a kept column in the row and in its record."""
    record = release.of(sensitivity)[which]
    release.rows[record.rows[0]][column] = record.values[column] = value


TEXTS: dict[str, tuple[Leak, str]] = {
    "a name": (lambda row: f"near {NAME}", "leak-text"),
    "a name in small letters": (lambda row: f"({NAME.lower()})", "leak-text"),
    "a name with other signs between": (lambda row: NAME.replace(" ", "_-"), "leak-text"),
    "an id": (lambda row: f"see {row['site_id']}.", "leak-text"),
    "directions": (lambda row: f"go: {row['directions']}", "leak-text"),
    "a pair of degrees": (lambda row: "at 38.512, -98.731", "leak-coordinates"),
    "a pair the other way round": (lambda row: "-98.731/38.512", "leak-coordinates"),
    "a pair with letters for signs": (lambda row: "38.512N 98.731W", "leak-coordinates"),
    "a fine cell": (lambda row: f"in {cell_of(row)}", "leak-coordinates"),
    "a latitude in full": (lambda row: f"lat {row['latitude']!r}", "leak-coordinates"),
    "a longitude without its sign": (lambda row: f"{-row['longitude']:.7f} W", "leak-coordinates"),
}


@pytest.mark.parametrize(("leak", "rule"), TEXTS.values(), ids=TEXTS)
def test_a_protected_value_in_a_kept_text_is_found(leak: Leak, rule: str) -> None:
    release = register_release()
    keep(release, "condition", leak_from(release, leak))
    assert rules_of(release) == {rule}


@pytest.mark.parametrize("digits", [3, 4, 9])
def test_a_rows_own_latitude_in_a_kept_text_is_found(digits: int) -> None:
    release = register_release()
    row = release.rows[release.of("withheld")[0].rows[0]]
    keep(release, "condition", f"seen from {row['latitude']:.{digits}f}")
    assert rules_of(release) == {"leak-coordinates"}


@pytest.mark.parametrize("text", ["E 412345 N 4212345", "412345.6", "412346 (rounded)"])
def test_a_rows_own_grid_coordinates_in_a_kept_text_are_found(text: str) -> None:
    release = register_release()
    own(release, easting=412345.67, northing=4212345.25)
    keep(release, "condition", text)
    assert rules_of(release) == {"leak-coordinates"}


@pytest.mark.parametrize(
    "text", ["a good one, 2.500 m deep", "version 1.234.5", "38.12 and -98.12", "12.345 of 67.890"]
)
def test_other_numbers_may_be_kept(text: str) -> None:
    release = register_release()
    keep(release, "condition", text)
    assert breaches_of(release) == ()


def test_a_text_from_the_declarations_is_no_leak() -> None:
    release = register_release()
    hidden(release)["land_owner"] = "Kansas"
    release.properties["title"] = "Heritage sites, Kansas"
    assert breaches_of(release) == ()


NUMBERS: dict[str, tuple[Change, set[str]]] = {
    "its own latitude": (lambda r: own(r, latitude=38.90625, depth_m=38.90625), {"leak-number"}),
    "its own easting": (lambda r: own(r, easting=412345.0, depth_m=412345.0), {"leak-number"}),
    "another's longitude": (lambda r: keep(r, "depth_m", hidden(r)["longitude"]), {"leak-number", "leak-bytes"}),
    "another's northing": (lambda r: keep(r, "depth_m", hidden(r)["northing"]), {"leak-number", "leak-bytes"}),
}


def own(release: Release, **values: float) -> None:
    row = release.rows[release.of("withheld")[0].rows[0]]
    row.update(values)
    if "depth_m" in values:
        keep(release, "depth_m", values["depth_m"])


@pytest.mark.parametrize(("change", "rules"), NUMBERS.values(), ids=NUMBERS)
def test_a_place_in_a_kept_number_is_found(change: Change, rules: set[str]) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == rules


def test_an_open_place_may_be_published() -> None:
    release = register_release()
    row = release.rows[release.of("open")[0].rows[0]]
    release.documents["map"] = {"at": [row["longitude"], row["latitude"]]}
    assert breaches_of(release) == ()


def test_a_displaced_point_at_a_true_place_is_found() -> None:
    release = displaced_release()
    release.rows[5].update(longitude=release.records[3].values["longitude"])
    assert {"leak-number", "leak-bytes"} <= rules_of(release)


@pytest.mark.parametrize(("leak", "rule"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_protected_value_in_a_document_is_found(leak: Leak, rule: str) -> None:
    release = register_release()
    release.documents["more"] = leak_from(release, leak)
    assert rules_of(release) == {rule}


@pytest.mark.parametrize(("leak", "rule"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_protected_value_in_the_item_is_found(leak: Leak, rule: str) -> None:
    release = register_release()
    release.properties["more"] = leak_from(release, leak)
    assert rules_of(release) == {rule}


def test_escapes_hide_nothing() -> None:
    release = register_release()
    hidden(release)
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in NAME)
    forged = replace(release.evidence(), documents={"more": f'["{escaped}"]'.encode()})
    assert rules_of(release, forged) == {"leak-text"}


def test_names_of_documents_are_checked() -> None:
    release = register_release()
    release.documents[str(hidden(release)["site_id"])] = {}
    assert rules_of(release) == {"leak-text"}


def test_dates_and_counts_in_documents_are_no_ids() -> None:
    release = register_release()
    hidden(release)["site_id"] = "1999"
    release.documents["more"] = {"on": "1999-06-01", "path": "sites/1999/06", "count": 1999}
    assert breaches_of(release) == ()


def test_seconds_in_documents_are_no_degrees() -> None:
    release = register_release()
    release.documents["more"] = {"at": f"2026-06-01T10:20:{hidden(release)['latitude']:.6f}Z"}
    assert breaches_of(release) == ()


def test_documents_may_repeat_the_published_bounding_box() -> None:
    """Even when a protected place is next to its border."""
    release = register_release()
    box = release.item(release.table()[0])["bbox"]
    hidden(release).update(longitude=box[0] + 0.0001937)
    release.documents["more"] = {"bbox": [round(number, 3) for number in box]}
    assert breaches_of(release) == ()


def test_a_number_with_few_digits_is_no_place() -> None:
    release = register_release()
    own(release, latitude=38.75, depth_m=38.75)
    assert breaches_of(release) == ()


def test_a_hidden_place_shared_with_an_open_record_is_no_leak() -> None:
    release = register_release()
    public = release.rows[release.of("open")[0].rows[0]]
    hidden(release).update(longitude=public["longitude"], latitude=public["latitude"])
    assert breaches_of(release) == ()

"""Canonical keys and time windows read back exactly as written, and refuse what names none."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.declarations import WindowLength
from kfm_pipelines.errors import KeyInvalid
from kfm_pipelines.events import KEY_DERIVATION_VERSION, CanonicalKey, Window, key_of, parse_label, window_of
from kfm_pipelines_tests.fixtures.events.notices import NOON, declared

part = st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True)
h3_res = st.sampled_from(["none", *map(str, range(16))])


def test_golden_key_of_a_declared_dataset() -> None:
    """A change of this text moves every key: raise KEY_DERIVATION_VERSION and note it in the changelog."""
    key = key_of(declared()["usgs/streamflow"], window_of(NOON, "hour"))
    assert (KEY_DERIVATION_VERSION, str(key)) == (1, "usgs-streamflow:kansas_statewide:none:2025-12-04T12Z:v1-0-0")


@given(st.builds(CanonicalKey, part, part, h3_res, part, part))
def test_a_key_reads_back_as_written(key: CanonicalKey) -> None:
    assert CanonicalKey.parse(str(key)) == key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 parts; five are needed"),
        ("a:b:none:c", "4 parts"),
        ("a:b:none:c:d:e", "6 parts"),
        ("a:b:none:c:", "transform_version must be"),
        ("a.b:b:none:c:d", "source must be"),
        ("a:b/c:none:c:d", "aoi must be"),
        ("a:b:none:2025-12-07T00:00Z:d", "6 parts"),
        ("a:b:none:c:d\n", "transform_version must be"),
        ("a:b:none\n:c:d", "h3_res must be"),
        ("a:b:16:c:d", "h3_res must be none or 0 to 15"),
        ("a:b:07:c:d", "h3_res must be none or 0 to 15"),
        ("a:b:None:c:d", "h3_res must be none or 0 to 15"),
        ("a:b:٣:c:d", "h3_res must be"),
        ("é:b:none:c:d", "source must be"),
    ],
)
def test_what_is_no_key_is_refused_with_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(KeyInvalid, match=reason) as refusal:
        CanonicalKey.parse(text)
    assert str(refusal.value).isprintable()


LENGTHS: tuple[WindowLength, ...] = ("hour", "day", "week", "month", "year")
instants = st.datetimes(datetime(1, 2, 1), datetime(9998, 12, 31), timezones=st.timezones())  # noqa: DTZ001


@pytest.mark.parametrize(
    ("length", "start", "end", "label"),
    [
        ("hour", datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), "2025-12-31T23Z"),
        ("day", datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), "2025-12-31"),
        ("week", datetime(2025, 12, 29, tzinfo=UTC), datetime(2026, 1, 5, tzinfo=UTC), "2026-W01"),
        ("month", datetime(2025, 12, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), "2025-12"),
        ("year", datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), "2025"),
    ],
)
def test_golden_windows(length: WindowLength, start: datetime, end: datetime, label: str) -> None:
    assert window_of(datetime(2025, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), length) == Window(start, end, label)


def test_february_of_a_leap_year_ends_in_march() -> None:
    assert window_of(datetime(2024, 2, 29, tzinfo=UTC), "month").end == datetime(2024, 3, 1, tzinfo=UTC)


def test_a_year_with_53_weeks_has_its_last() -> None:
    assert parse_label("2026-W53").end == datetime(2027, 1, 4, tzinfo=UTC)


def test_early_years_keep_four_digits() -> None:
    assert window_of(datetime(476, 9, 4, 1, tzinfo=UTC), "hour").label == "0476-09-04T01Z"


@given(instants, st.sampled_from(LENGTHS))
def test_every_instant_is_inside_its_window_and_the_end_is_in_the_next(instant: datetime, length: WindowLength) -> None:
    window = window_of(instant, length)
    assert window.start <= instant < window.end
    assert window_of(window.start, length) == window
    assert window_of(window.end, length).start == window.end
    assert window_of(window.end - timedelta(microseconds=1), length) == window
    assert parse_label(window.label) == window


def test_the_offset_of_the_instant_does_not_matter() -> None:
    central = timezone(timedelta(hours=-6))
    assert window_of(datetime(2025, 12, 6, 19, tzinfo=central), "day").label == "2025-12-07"


def test_naive_datetimes_are_refused() -> None:
    with pytest.raises(ValueError, match="no offset"):
        window_of(datetime(2025, 12, 7), "hour")  # noqa: DTZ001


@pytest.mark.parametrize("length", LENGTHS)
def test_the_last_window_of_the_calendar_is_refused(length: WindowLength) -> None:
    with pytest.raises(ValueError, match="beyond the calendar"):
        window_of(datetime(9999, 12, 31, 23, 30, tzinfo=UTC), length)


@pytest.mark.parametrize(
    "label",
    [
        "",
        "0000",
        "2025-W00",
        "2025-W53",
        "2025-W1",
        "2025-13",
        "2025-00",
        "2025-02-30",
        "2025-12-07T24Z",
        "2025-12-07T00",
        "2025-12-07\n",
        "0000-01",
        "9999-12",
        "٢٠٢٥-12",
    ],
)
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(KeyInvalid, match="time window"):
        parse_label(label)

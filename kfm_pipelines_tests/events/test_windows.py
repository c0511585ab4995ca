"""Windows are UTC, half-open and never overlap; a label names exactly one."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.declarations import WindowLength
from kfm_pipelines.errors import KeyInvalid
from kfm_pipelines.events import Window, parse_label, window_of

LENGTHS: tuple[WindowLength, ...] = ("hour", "day", "month")
instants = st.datetimes(datetime(1, 2, 1), datetime(9998, 12, 31), timezones=st.timezones())  # noqa: DTZ001


@pytest.mark.parametrize(
    ("length", "start", "end", "label"),
    [
        ("hour", datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), "2025-12-31T23Z"),
        ("day", datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), "2025-12-31"),
        ("month", datetime(2025, 12, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), "2025-12"),
    ],
)
def test_golden_windows(length: WindowLength, start: datetime, end: datetime, label: str) -> None:
    assert window_of(datetime(2025, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), length) == Window(start, end, label)


def test_february_of_a_leap_year_ends_in_march() -> None:
    assert window_of(datetime(2024, 2, 29, tzinfo=UTC), "month").end == datetime(2024, 3, 1, tzinfo=UTC)


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
        "2025",
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

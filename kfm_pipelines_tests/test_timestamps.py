"""Timestamps are RFC 3339 with an offset, strictly, and come out in UTC."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.text import read_timestamp, write_timestamp


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2025-12-04T03:14:15Z", datetime(2025, 12, 4, 3, 14, 15, tzinfo=UTC)),
        ("2025-12-04t03:14:15z", datetime(2025, 12, 4, 3, 14, 15, tzinfo=UTC)),
        ("2015-12-28T20:00:53.031Z", datetime(2015, 12, 28, 20, 0, 53, 31000, tzinfo=UTC)),
        ("2025-12-04T03:14:15.5Z", datetime(2025, 12, 4, 3, 14, 15, 500000, tzinfo=UTC)),
        ("2025-12-04T03:14:15.123456789Z", datetime(2025, 12, 4, 3, 14, 15, 123456, tzinfo=UTC)),
        ("2025-12-03T21:14:15-06:00", datetime(2025, 12, 4, 3, 14, 15, tzinfo=UTC)),
        ("2025-12-04T03:14:15-00:00", datetime(2025, 12, 4, 3, 14, 15, tzinfo=UTC)),
    ],
)
def test_timestamps_come_out_in_utc(text: str, instant: datetime) -> None:
    read = read_timestamp(text)
    assert (read, read.tzinfo) == (instant, UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-12-04",
        "2025-12-04T03:14:15",
        "2025-12-04 03:14:15Z",
        "2025-12-04T03:14Z",
        "20251204T031415Z",
        "2025-W49-4T03:14:15Z",
        "2025-12-04T03:14:15,5Z",
        "2025-12-04T03:14:15.Z",
        "2025-12-04T03:14:15+0000",
        "2025-12-04T03:14:15+24:00",
        "2025-12-04T24:00:00Z",
        "2025-12-31T23:59:60Z",
        "2025-12-04T03:14:15Z\n",
        "٢٠٢٥-12-04T03:14:15Z",
        "1764818055",
    ],
)
def test_another_form_is_refused_with_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not an RFC 3339 timestamp with an offset") as refusal:
        read_timestamp(text)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "2025-02-29T00:00:00Z",
        "2025-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_an_impossible_instant_is_refused_with_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid time"):
        read_timestamp(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_we_write_we_read_back_to_the_millisecond(instant: datetime) -> None:
    expected = instant.replace(microsecond=instant.microsecond // 1000 * 1000)
    assert read_timestamp(write_timestamp(instant)) == expected


def test_naive_datetimes_are_not_written() -> None:
    with pytest.raises(ValueError, match="no offset"):
        write_timestamp(datetime(2025, 12, 4))  # noqa: DTZ001

"""Of several events about one object the newest counts, in whatever order they arrive."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.events import IngestEvent, newest_per_object
from kfm_pipelines_tests.events.given import KEY_AT_03, NOON, event

LATER = NOON + timedelta(hours=1)

events = st.builds(
    event,
    object_key=st.sampled_from([KEY_AT_03, f"{KEY_AT_03[:-8]}-2.parquet"]),
    identity=st.sampled_from(["a" * 64, "b" * 64]),
    sequencer=st.none() | st.sampled_from(["0", "00", "AB", "ab0", "aB01", "ac", "b"]),
    event_time=st.sampled_from([NOON, LATER]),
    priority=st.sampled_from(["high", "low"]),
)


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[IngestEvent], list[IngestEvent]]:
    arrived = draw(st.lists(events, max_size=8))
    return arrived, draw(st.permutations(arrived))


@given(shuffled())
def test_the_order_of_arrival_does_not_matter(orders: tuple[list[IngestEvent], list[IngestEvent]]) -> None:
    one, other = orders
    assert newest_per_object(one) == newest_per_object(other)


@given(st.lists(events, max_size=6), st.lists(events, max_size=6))
def test_folding_in_two_ticks_gives_the_same_as_in_one(first: list[IngestEvent], second: list[IngestEvent]) -> None:
    assert newest_per_object([*newest_per_object(first), *second]) == newest_per_object(first + second)


@given(st.lists(events, max_size=8))
def test_there_is_one_event_per_object_sorted_by_asset(arrived: list[IngestEvent]) -> None:
    uris = [newest.asset_uri for newest in newest_per_object(arrived)]
    assert uris == sorted({seen.asset_uri for seen in arrived})


@pytest.mark.parametrize(
    ("older", "newer"),
    [("0055AE", "0055AF"), ("0055AE", "0055AE01"), ("0055AE9", "0055AF"), ("0055ae", "0055AF"), ("0055AE", "0055af")],
)
def test_sequencers_decide_against_the_clock(older: str, newer: str) -> None:
    stale, fresh = event(sequencer=older, event_time=LATER), event(sequencer=newer, event_time=NOON)
    assert newest_per_object([stale, fresh]) == (fresh,)


@pytest.mark.parametrize(("one", "other"), [("00ab", "00AB"), ("00AB", "00AB00")])
def test_equal_sequencers_leave_it_to_the_clock(one: str, other: str) -> None:
    stale, fresh = event(sequencer=other, event_time=NOON), event(sequencer=one, event_time=LATER)
    assert newest_per_object([fresh, stale]) == (fresh,)


def test_without_sequencers_the_clock_decides_and_then_the_identity() -> None:
    first, second = event(identity="a" * 64, shape="z"), event(identity="b" * 64, shape="a")
    assert newest_per_object([second, first]) == (second,)
    assert newest_per_object([second, event(identity="a" * 64, event_time=LATER)])[0].event_time == LATER


def test_the_stores_own_word_beats_a_later_announcement() -> None:
    stored, announced = event(sequencer="00", event_time=NOON), event(event_time=LATER)
    assert newest_per_object([announced, stored]) == (stored,)

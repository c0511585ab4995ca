"""Of several events about one object the newest counts, in whatever order they arrive; what was removed does not."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.events import IngestEvent, newest_per_object, superseded_identities
from kfm_pipelines_tests.fixtures.events.notices import KEY_AT_03, NOON, event

LATER = NOON + timedelta(hours=1)
SECOND = timedelta(seconds=1)
OTHER = f"{KEY_AT_03[:-8]}-2.parquet"
# Rising, with lengths that fool a comparison of bare text or of numbers.
SEQUENCERS = ("0055AE", "0055AE01", "0055af")


def grouped_event(group: str | None = None, place: int | None = None, **fields: Any) -> IngestEvent:
    return replace(event(**fields), message_group=group, group_sequence=place)


events = st.builds(
    grouped_event,
    group=st.none() | st.sampled_from(["g", "h"]),
    place=st.none() | st.integers(1, 3),
    object_key=st.sampled_from([KEY_AT_03, OTHER]),
    identity=st.sampled_from(["a" * 64, "b" * 64]),
    sequencer=st.none() | st.sampled_from(["0", "00", "AB", "ab0", "aB01", "ac", "b"]),
    version_id=st.none() | st.sampled_from(["v1", "v2"]),
    event_time=st.sampled_from([NOON, NOON + SECOND, LATER]),
    change=st.sampled_from(["created", "created", "deleted", "purged"]),
)


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[IngestEvent], list[IngestEvent]]:
    arrived = draw(st.lists(events, max_size=8))
    return arrived, draw(st.permutations(arrived))


@pytest.mark.slow
@given(shuffled())
@settings(deadline=None, max_examples=300)
def test_the_order_of_arrival_does_not_matter(orders: tuple[list[IngestEvent], list[IngestEvent]]) -> None:
    one, other = orders
    assert newest_per_object(one) == newest_per_object(other)


@given(st.lists(events, max_size=8))
@settings(deadline=None)
def test_receiving_an_event_twice_changes_nothing(arrived: list[IngestEvent]) -> None:
    assert newest_per_object(arrived * 2) == newest_per_object(arrived)


@given(st.lists(events, max_size=8))
@settings(deadline=None)
def test_there_is_at_most_one_write_per_object_sorted_by_asset(arrived: list[IngestEvent]) -> None:
    newest = newest_per_object(arrived)
    uris = [winner.asset_uri for winner in newest]
    assert uris == sorted(set(uris))
    assert {winner.change for winner in newest} <= {"created"}
    assert newest == tuple(
        winner
        for uri in sorted({seen.asset_uri for seen in arrived})
        for winner in newest_per_object(seen for seen in arrived if seen.asset_uri == uri)
    )


def results(history: Sequence[IngestEvent]) -> set[tuple[IngestEvent, ...]]:
    """What all orders of arrival end in."""
    return {newest_per_object(order) for order in permutations(history)}


def history(*writes: dict[str, Any]) -> list[IngestEvent]:
    """PUT, DELETE, PUT, with what each write has to be ordered by."""
    kinds = ["created", "deleted", "created"]
    return [
        grouped_event(change=change, identity=digit * 64, **write)
        for change, digit, write in zip(kinds, "cba", writes, strict=True)
    ]


sources = st.sampled_from(["sequenced", "grouped", "alone"])


def written_by(source: str, number: int) -> dict[str, Any]:
    if source == "sequenced":
        return {"sequencer": SEQUENCERS[number]}
    return {"group": "g", "place": number + 9} if source == "grouped" else {}


@given(st.tuples(sources, sources, sources), st.tuples(*[st.integers(1, 3600)] * 3))
@settings(deadline=None)
def test_with_honest_clocks_the_last_write_wins_whatever_its_sources(
    took: tuple[str, str, str], pauses: tuple[int, int, int]
) -> None:
    times = [NOON + sum(pauses[: number + 1]) * SECOND for number in range(3)]
    put, delete, again = history(*(written_by(took[n], n) | {"event_time": times[n]} for n in range(3)))
    assert results([put, delete, again]) == {(again,)}
    assert results([put, delete]) == {()}
    assert results([put, again]) == {(again,)}
    assert results([put]) == {(put,)}


@given(st.tuples(sources, sources, sources), st.tuples(*[st.integers(0, 3)] * 3))
@settings(deadline=None)
def test_with_any_clocks_all_orders_of_arrival_agree(took: tuple[str, str, str], clocks: tuple[int, int, int]) -> None:
    writes = history(*(written_by(took[n], n) | {"event_time": NOON + clocks[n] * SECOND} for n in range(3)))
    assert len(results(writes)) == 1


@pytest.mark.parametrize("source", ["sequenced", "grouped"])
@given(clocks=st.tuples(*[st.integers(0, 3)] * 3))
@settings(deadline=None)
def test_a_chain_keeps_its_order_however_wrong_its_clocks(source: str, clocks: tuple[int, int, int]) -> None:
    put, delete, again = history(*(written_by(source, n) | {"event_time": NOON + clocks[n] * SECOND} for n in range(3)))
    assert results([put, delete, again]) == {(again,)}
    assert results([put, delete]) == {()}


@given(clocks=st.tuples(*[st.integers(0, 3)] * 3), stray=st.integers(0, 3))
@settings(deadline=None)
def test_a_stray_event_does_not_turn_a_chain_around(clocks: tuple[int, int, int], stray: int) -> None:
    """Comparing pairs would: A before B by sequencer, B before C and C before A by clock."""
    writes = history(*(written_by("sequenced", n) | {"event_time": NOON + clocks[n] * SECOND} for n in range(3)))
    announced = grouped_event(event_time=NOON + stray * SECOND, identity="e" * 64)
    [winner] = results([*writes, announced])
    assert winner in {(writes[-1],), (announced,)}


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


def test_the_place_in_a_group_decides_against_the_clock_and_as_a_number() -> None:
    stale = grouped_event("g", 9, event_time=LATER)
    fresh = grouped_event("g", 10, event_time=NOON)
    assert results([stale, fresh]) == {(fresh,)}


def test_places_in_different_groups_do_not_compare() -> None:
    stale = grouped_event("g", 10, event_time=NOON)
    fresh = grouped_event("h", 9, event_time=LATER)
    assert results([stale, fresh]) == {(fresh,)}


def test_without_sequencers_the_clock_decides_and_then_the_identity() -> None:
    first, second = event(identity="a" * 64, shape="z"), event(identity="b" * 64, shape="a")
    assert newest_per_object([second, first]) == (second,)
    assert newest_per_object([second, event(identity="a" * 64, event_time=LATER)])[0].event_time == LATER


def test_an_old_write_with_a_sequencer_does_not_beat_a_later_announcement() -> None:
    stored, announced = event(sequencer="00", event_time=NOON), event(event_time=LATER)
    assert results([announced, stored]) == {(announced,)}


def test_at_the_same_time_the_stores_own_word_counts_most_and_a_single_one_least() -> None:
    stored, grouped, announced = event(sequencer="00"), grouped_event("g", 1), event()
    assert results([stored, grouped, announced]) == {(stored,)}
    assert results([grouped, announced]) == {(grouped,)}


def version(name: str, sequencer: str | None, change: str = "created", **fields: Any) -> IngestEvent:
    return event(version_id=name, sequencer=sequencer, change=change, **fields)


FIRST, SECOND_VERSION = version("v1", "01"), version("v2", "02")
MARKER = version("m1", "03", "deleted")


@pytest.mark.parametrize(
    ("happened", "left"),
    [
        ([FIRST, SECOND_VERSION, version("v2", "03", "purged")], (FIRST,)),
        ([FIRST, SECOND_VERSION, version("v1", "03", "purged")], (SECOND_VERSION,)),
        ([FIRST, version("v1", "02", "purged")], ()),
        ([FIRST, version("v1", None, "purged", event_time=NOON - LATER.resolution)], ()),
        ([version("v1", "02", "purged")], ()),
        ([FIRST, SECOND_VERSION, version("v1", "03", "purged"), version("v2", "04", "purged")], ()),
        ([FIRST, MARKER], ()),
        ([FIRST, MARKER, version("m1", "04", "purged")], (FIRST,)),
        ([FIRST, SECOND_VERSION, MARKER, version("v2", "04", "purged")], ()),
        ([FIRST, MARKER, version("v9", "04", "purged")], ()),
        ([FIRST, version("v1", "03", "purged", object_key=OTHER)], (FIRST,)),
        ([event(sequencer="01"), version("v1", "02", "purged")], (event(sequencer="01"),)),
        ([FIRST, event(sequencer="02", change="purged")], (FIRST,)),
    ],
    ids=[
        "the newest version",
        "an older version",
        "the only version",
        "the only version, by a purge that seems older",
        "a version never heard of",
        "all versions",
        "a delete marker",
        "a delete marker, purged",
        "the version under a delete marker",
        "another version under a delete marker",
        "a version of another object",
        "a version, and the write had none",
        "no version in particular",
    ],
)
def test_a_purged_version_was_never_there(happened: list[IngestEvent], left: tuple[IngestEvent, ...]) -> None:
    assert results(happened) == {left}


def test_the_clock_of_a_purged_version_does_not_count_either() -> None:
    wild = version("v1", "01", event_time=LATER + SECOND)
    fresh, announced = version("v2", "02", event_time=NOON), event(event_time=LATER)
    assert results([wild, fresh, announced]) == {(fresh,)}
    assert results([wild, fresh, announced, version("v1", "03", "purged")]) == {(announced,)}


of_one_object = st.builds(
    grouped_event,
    group=st.sampled_from([None, "g"]),
    place=st.integers(1, 9),
    sequencer=st.sampled_from([None, None, "1", "2", "3", "4"]),
    version_id=st.sampled_from([None, None, None, "v1", "v2"]),
    event_time=st.integers(0, 5).map(lambda seconds: NOON + seconds * SECOND),
    change=st.sampled_from(["created", "created", "created", "deleted", "purged"]),
)


@st.composite
def heard(draw: st.DrawFn) -> tuple[list[IngestEvent], list[IngestEvent]]:
    """Events that are known, and more that come later. No identity twice, as in the inbox."""
    arrived = draw(st.lists(events, max_size=12) | st.lists(of_one_object, min_size=3, max_size=9))
    named = [replace(seen, identity=f"{number:064}") for number, seen in enumerate(draw(st.permutations(arrived)))]
    known = draw(st.integers(0, len(named)))
    return named[:known], named[known:]


@pytest.mark.slow
@given(heard(), st.data())
@settings(deadline=None, max_examples=1000)
def test_forgetting_superseded_writes_changes_nothing_now_or_later(
    histories: tuple[list[IngestEvent], list[IngestEvent]], data: st.DataObject
) -> None:
    known, later = histories
    forgotten = {
        identity for identity in sorted(superseded_identities(known)) if data.draw(st.booleans() | st.just(True))
    }
    kept = [seen for seen in known if seen.identity not in forgotten]
    assert newest_per_object(kept) == newest_per_object(known)
    assert newest_per_object(kept + later) == newest_per_object(known + later)
    assert {seen.change for seen in known if seen.identity in forgotten} <= {"created"}


@given(st.lists(events, max_size=8))
@settings(deadline=None)
def test_the_newest_write_is_not_superseded(arrived: list[IngestEvent]) -> None:
    named = [replace(seen, identity=f"{number:064}") for number, seen in enumerate(arrived)]
    assert not superseded_identities(named) & {winner.identity for winner in newest_per_object(named)}


@pytest.mark.slow
@given(heard(), st.data())
@settings(deadline=None, max_examples=300)
def test_forgetting_stays_harmless_when_a_kept_event_is_written_again(
    histories: tuple[list[IngestEvent], list[IngestEvent]], data: st.DataObject
) -> None:
    """An identity heard of with a later sequencer moves to it, with the later of its times."""
    known, later = histories
    forgotten = superseded_identities(known)
    kept = [seen for seen in known if seen.identity not in forgotten]
    if not kept:
        return
    moving = data.draw(st.sampled_from(kept))
    moved = replace(moving, sequencer="c", event_time=max(moving.event_time, data.draw(st.sampled_from([NOON, LATER]))))
    rest = [seen for seen in [*known, *later] if seen is not moving]
    left = [seen for seen in rest if seen.identity not in forgotten]
    assert newest_per_object([*left, moved]) == newest_per_object([*rest, moved])


def numbered(*writes: IngestEvent) -> list[IngestEvent]:
    return [replace(write, identity=f"{number:064}") for number, write in enumerate(writes)]


@pytest.mark.parametrize(
    ("happened", "numbers"),
    [
        ([event(sequencer="01"), event(sequencer="02")], {0}),
        ([event(sequencer="01", event_time=LATER), event(sequencer="02")], set()),
        ([event(sequencer="01"), event(sequencer="02", change="deleted")], {0}),
        ([grouped_event("g", 1), grouped_event("g", 2), grouped_event("h", 1)], {0}),
        ([event(), event(event_time=LATER), event(sequencer="01")], {0}),
        ([event(), event(sequencer="01")], {0}),
        ([event(event_time=LATER), event(sequencer="01")], set()),
        ([FIRST, SECOND_VERSION], set()),
        ([FIRST, MARKER], set()),
        ([FIRST, SECOND_VERSION, version("v1", "03", "purged")], {0}),
        ([FIRST, event(sequencer="02")], {0}),
        ([event(sequencer="01"), SECOND_VERSION], set()),
        ([event(sequencer="01"), event(sequencer="02", object_key=OTHER)], set()),
    ],
    ids=[
        "an older write of a chain",
        "one whose time the chain still needs",
        "one that was deleted; the deletion stays",
        "the last of every chain stays",
        "an older announcement",
        "an announcement as old as the store's event",
        "a newer announcement",
        "a version, while the newer one can be purged",
        "a version, while its delete marker can be purged",
        "a purged version; the purge stays",
        "a version under a write that has none",
        "a write without a version under one that has one",
        "the last of another object",
    ],
)
def test_what_is_replaceable(happened: list[IngestEvent], numbers: set[int]) -> None:
    assert superseded_identities(numbered(*happened)) == {f"{number:064}" for number in numbers}

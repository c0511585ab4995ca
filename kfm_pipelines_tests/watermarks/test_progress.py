"""The watermark is a function of the events, whatever their order, and never moves back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfm_pipelines.declarations import Watermark
from kfm_pipelines.watermarks.progress import Advance, WatermarkStep, envelope, is_active, is_progress
from kfm_pipelines_tests.fixtures.runs.streams import sweep

START = datetime(2025, 12, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULE = Watermark(
    partition="site", out_of_order=timedelta(hours=2), idle_after=timedelta(hours=3), skew=timedelta(hours=1)
)

Point = tuple[str, Advance]


def at(hours: float, reached: float) -> Advance:
    return Advance(START + hours * HOUR, START + reached * HOUR)


def step(hours: float, watermark: float) -> WatermarkStep:
    return WatermarkStep(START + hours * HOUR, START + watermark * HOUR)


points = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.builds(at, st.integers(0, 15), st.integers(-4, 18))), max_size=14
)


def all_at_once(points_given: Sequence[Point]) -> tuple[list[Point], list[WatermarkStep]]:
    counting = [(name, one) for name, one in points_given if is_progress(one.at, one.reached, RULE)]
    names = sorted({name for name, _ in counting})
    advances = [(name, one) for name in names for one in envelope(one for other, one in counting if other == name)]
    return advances, sweep({}, None, advances, RULE)


def by_definition(advances: Sequence[Point]) -> list[WatermarkStep]:
    """Computes the minimum of the active streams, or the furthest of all, at every time it can change."""
    times = {one.at for _, one in advances} | {one.at + RULE.idle_after for _, one in advances}
    steps: list[WatermarkStep] = []
    for time in sorted(times):
        last = dict(sorted(((name, one) for name, one in advances if one.at <= time), key=lambda pair: pair[1].at))
        active = [one.reached for one in last.values() if is_active(one, time, RULE)]
        mark = (min(active) if active else max(one.reached for one in last.values())) - RULE.out_of_order
        if not steps or mark > steps[-1].watermark:
            steps.append(WatermarkStep(time, mark))
    return steps


@dataclass
class Incremental:
    """The state after each event, recomputed only from where it changed."""

    advances: list[Point] = field(default_factory=list)
    steps: list[WatermarkStep] = field(default_factory=list)

    def add(self, name: str, new: Advance) -> None:
        of_stream = [one for other, one in self.advances if other == name]
        kept = envelope([*of_stream, new]) if is_progress(new.at, new.reached, RULE) else of_stream
        if new not in kept or new in of_stream:
            return
        self.advances = [
            *((other, one) for other, one in self.advances if other != name),
            *((name, one) for one in kept),
        ]
        before = self._before(new.at)
        known = [one for one in self.steps if one.at < new.at]
        later = [(other, one) for other, one in self.advances if one.at >= new.at]
        self.steps = [*known, *sweep(before, known[-1].watermark if known else None, later, RULE)]

    def _before(self, time: datetime) -> Mapping[str, Advance]:
        return dict(sorted((pair for pair in self.advances if pair[1].at < time), key=lambda pair: pair[1].at))


@given(points, st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_any_order_gives_the_same_advances_and_steps(points_given: list[Point], chance: object) -> None:
    shuffled = [*points_given, *points_given[:3]]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    incremental = Incremental()
    for name, one in shuffled:
        incremental.add(name, one)
    advances, steps = all_at_once(points_given)
    assert sorted(incremental.advances) == advances
    assert incremental.steps == steps == by_definition(advances)


@given(points)
@example([("a", at(0, 0)), ("b", at(0, 10))])
def test_the_watermark_never_moves_back_and_ends_at_the_furthest_stream(points_given: list[Point]) -> None:
    advances, steps = all_at_once(points_given)
    times, marks = [one.at for one in steps], [one.watermark for one in steps]
    assert times == sorted(set(times))
    assert marks == sorted(set(marks))
    if advances:
        assert marks[-1] == max(one.reached for _, one in advances) - RULE.out_of_order


@given(points, st.builds(at, st.integers(0, 15), st.just(500)))
def test_data_from_the_future_advances_nothing(points_given: list[Point], ahead: Advance) -> None:
    assert all_at_once([*points_given, ("a", ahead)]) == all_at_once(points_given)


@pytest.mark.parametrize(
    ("made", "about", "counts"),
    [
        (START, START + HOUR, True),
        (START, START + HOUR + timedelta(seconds=1), False),
        (START, START - 10_000 * HOUR, True),
        (datetime(9999, 1, 1, tzinfo=UTC), START, False),
        (START, datetime(1, 1, 1, tzinfo=UTC), False),
    ],
)
def test_which_events_count_as_progress(made: datetime, about: datetime, counts: bool) -> None:
    assert is_progress(made, about, RULE) is counts


def test_the_slowest_active_stream_holds_back_the_others_until_it_is_idle() -> None:
    points_given = [("slow", at(0, 0)), ("fast", at(0, 8)), ("fast", at(2, 9)), ("fast", at(4, 10))]
    assert sweep({}, None, points_given, RULE) == [step(0, -2), step(3, 7), step(4, 8)]


def test_when_all_are_idle_the_furthest_counts() -> None:
    points_given = [("near", at(2, 1)), ("far", at(1, 6))]
    assert sweep({}, None, points_given, RULE) == [step(1, 4)]
    assert sweep({}, None, [("near", at(1, 1)), ("far", at(1, 6))], RULE) == [step(1, -1), step(4, 4)]


def test_a_stream_is_idle_when_it_has_not_advanced_for_so_long() -> None:
    one = at(0, 0)
    assert is_active(one, START + 3 * HOUR - timedelta(microseconds=1), RULE)
    assert not is_active(one, START + 3 * HOUR, RULE)

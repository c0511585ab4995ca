"""Computes the watermark of a dataset as a step function of time, whatever order events arrive in. Pure.

Time is the producers': when an event was made, not when a queue delivered it. A stream has reached the latest data time
of the events made so far. The watermark is the minimum over the active streams, less the allowed disorder. A stream
that has not advanced for a while is idle and holds back no other; when all are idle, the furthest one counts. The
watermark never moves back. It depends on the events alone, and so does lateness.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from itertools import groupby

from kfm_pipelines.declarations import Watermark


@dataclass(frozen=True, slots=True, order=True)
class Advance:
    """At time `at` a stream had reached data time `reached`."""

    at: datetime
    reached: datetime


@dataclass(frozen=True, slots=True)
class WatermarkStep:
    """From time `at` on, the watermark is `watermark`."""

    at: datetime
    watermark: datetime


Advances = Sequence[tuple[str, Advance]]  # by partition
# Dates outside these years are mistakes and do not count as progress.
FIRST_YEAR, LAST_YEAR = 1800, 2400


def is_progress(made_at: datetime, data_time: datetime, rule: Watermark) -> bool:
    """Returns whether the event advances its stream; data from the future does not."""
    known = all(FIRST_YEAR <= time.year <= LAST_YEAR for time in (made_at, data_time))
    return known and data_time <= made_at + rule.skew


def envelope(advances: Iterable[Advance]) -> list[Advance]:
    """Returns the advances of one stream that got further than all before them."""
    furthest: list[Advance] = []
    # Of several at the same time the furthest comes first.
    for one in sorted(sorted(advances, key=lambda one: one.reached, reverse=True), key=lambda one: one.at):
        if not furthest or one.reached > furthest[-1].reached:
            furthest.append(one)
    return furthest


class Sweep:
    """Computes the steps that follow from an initial state and later advances, given in batches."""

    def __init__(self, before: Mapping[str, Advance], watermark: datetime | None, rule: Watermark) -> None:
        self._rule = rule
        self.streams = _Streams(rule)
        self.watermark = watermark
        for partition, advance in before.items():
            self.streams.advance(partition, advance)

    def process(self, advances: Iterable[tuple[str, Advance]]) -> list[WatermarkStep]:
        """Returns the steps up to the last advance; all are later than those processed before."""
        steps: list[WatermarkStep] = []
        ordered = sorted(advances, key=lambda one: (one[1].at, one[0]))
        for at, moved in groupby(ordered, key=lambda one: one[1].at):
            for idle_at in self.streams.idle_times(at):
                steps += self._steps_at(idle_at)
            for partition, advance in moved:
                self.streams.advance(partition, advance)
            steps += self._steps_at(at)
        return steps

    def finish(self) -> list[WatermarkStep]:
        return [step for idle_at in self.streams.idle_times(None) for step in self._steps_at(idle_at)]

    def _steps_at(self, at: datetime) -> Iterator[WatermarkStep]:
        reached = self.streams.reached_by_all(at)
        if reached is None:
            return
        mark = reached - self._rule.out_of_order
        if self.watermark is None or mark > self.watermark:
            self.watermark = mark
            yield WatermarkStep(at, mark)


@dataclass(frozen=True, slots=True)
class Period:
    """After `since` until `until`; None is unbounded."""

    since: datetime
    until: datetime | None


def find_disagreement(
    before: datetime | None, old_steps: Iterable[WatermarkStep], new_steps: Iterable[WatermarkStep]
) -> Period | None:
    """Returns the period in which two sequences of steps give different watermarks."""
    marks = [{step.at: step.watermark for step in steps} for steps in (old_steps, new_steps)]
    one = other = before
    since: datetime | None = None
    until: datetime | None = None
    for at in sorted({*marks[0], *marks[1]}):
        one, other = marks[0].get(at, one), marks[1].get(at, other)
        if one != other:
            since, until = since or at, None
        elif since is not None and until is None:
            until = at
    return None if since is None else Period(since, until)


def is_active(advance: Advance, at: datetime, rule: Watermark) -> bool:
    return at < advance.at + rule.idle_after


class _Streams:
    """There may be thousands, so the slowest and the next to become idle are kept on heaps."""

    def __init__(self, rule: Watermark) -> None:
        self._rule = rule
        self.last: dict[str, Advance] = {}
        self._by_reached: list[tuple[datetime, str, Advance]] = []
        self._by_idle_time: list[tuple[datetime, str, Advance]] = []
        self.furthest: datetime | None = None
        self._since: datetime | None = None

    def advance(self, partition: str, advance: Advance) -> None:
        self.last[partition] = advance
        heappush(self._by_reached, (advance.reached, partition, advance))
        heappush(self._by_idle_time, (advance.at + self._rule.idle_after, partition, advance))
        self.furthest = max(self.furthest or advance.reached, advance.reached)
        self._since = max(self._since or advance.at, advance.at)

    def reached_by_all(self, at: datetime) -> datetime | None:
        """Returns the furthest if all are idle. Times are in order, so outdated entries can be dropped."""
        while self._by_reached:
            reached, partition, one = self._by_reached[0]
            if self.last[partition] is one and is_active(one, at, self._rule):
                return reached
            heappop(self._by_reached)
        return self.furthest

    def idle_times(self, until: datetime | None) -> Iterator[datetime]:
        """Yields when streams become idle before `until`, in order."""
        while self._by_idle_time and (until is None or self._by_idle_time[0][0] <= until):
            idle_at, partition, one = heappop(self._by_idle_time)
            happens = self._since is not None and idle_at > self._since and (until is None or idle_at < until)
            if happens and self.last[partition] is one:
                yield idle_at

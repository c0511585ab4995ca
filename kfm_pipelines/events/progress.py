"""How far streams have come: the one step function of a dataset's watermark over time, whatever order events came in.

Belongs here: the arithmetic. Does not: remembering any of it (state's).

Time here is the producers': when an event was made, not when a queue delivered it. A stream has reached the latest time
that an event made so far was about. The watermark is the least of what the active streams have reached, less what may
come out of order; a stream that has not advanced for a while is idle and holds back nobody, and when all are idle none
of them holds back the furthest. It never goes back. So it is a function of the events and of nothing else, and with it
what is late: an event made after the watermark had passed the end of its window.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from kfm_pipelines.declarations import Watermark


@dataclass(frozen=True, slots=True, order=True)
class Advance:
    """At this time a stream had reached that time."""

    at: datetime
    reached: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """From this time on the watermark is that."""

    at: datetime
    watermark: datetime


# Years that can be a mistake only; what is dated beyond them is no sign of progress, nor can it be reckoned with.
FIRST_YEAR, LAST_YEAR = 1800, 2400


def is_progress(made_at: datetime, data_time: datetime, rule: Watermark) -> bool:
    """Whether an event says how far its stream is. One about a time that had not come when it was made does not."""
    known = all(FIRST_YEAR <= time.year <= LAST_YEAR for time in (made_at, data_time))
    return known and data_time <= made_at + rule.skew


def envelope(advances: Iterable[Advance]) -> list[Advance]:
    """Those of one stream that got further than all before them."""
    furthest: list[Advance] = []
    # Of those at the same time the furthest comes first, and the others are behind it.
    for one in sorted(sorted(advances, key=lambda one: one.reached, reverse=True), key=lambda one: one.at):
        if not furthest or one.reached > furthest[-1].reached:
            furthest.append(one)
    return furthest


def sweep(
    before: Mapping[str, Advance],
    watermark: datetime | None,
    advances: Iterable[tuple[str, Advance]],
    rule: Watermark,
) -> list[Step]:
    """The steps that follow from what each stream had reached, the watermark of then, and every later advance; to the
    end, which is when all streams have been idle."""
    streams = dict(before)
    steps: list[Step] = []
    ordered = sorted(advances, key=lambda one: (one[1].at, one[0]))
    for at, moved in groupby(ordered, key=lambda one: one[1].at):
        for idle_at in _idle_times(streams, at, rule):
            watermark = _stepped(steps, idle_at, watermark, streams, rule)
        streams |= dict(moved)
        watermark = _stepped(steps, at, watermark, streams, rule)
    for idle_at in _idle_times(streams, None, rule):
        watermark = _stepped(steps, idle_at, watermark, streams, rule)
    return steps


def is_active(advance: Advance, at: datetime, rule: Watermark) -> bool:
    return at < advance.at + rule.idle_after


def _idle_times(streams: Mapping[str, Advance], until: datetime | None, rule: Watermark) -> Iterator[datetime]:
    """When streams fall idle one after the other, if nothing happens before `until`."""
    since = max((one.at for one in streams.values()), default=None)
    times = {one.at + rule.idle_after for one in streams.values()}
    return (at for at in sorted(times) if since is not None and at > since and (until is None or at < until))


def _stepped(
    steps: list[Step], at: datetime, watermark: datetime | None, streams: Mapping[str, Advance], rule: Watermark
) -> datetime | None:
    """The watermark at this time; a step if it is a new one."""
    active = [one.reached for one in streams.values() if is_active(one, at, rule)]
    reached = min(active) if active else max((one.reached for one in streams.values()), default=None)
    if reached is None or (watermark is not None and reached - rule.out_of_order <= watermark):
        return watermark
    steps.append(Step(at, reached - rule.out_of_order))
    return steps[-1].watermark

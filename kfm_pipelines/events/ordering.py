"""Which of several events about one object counts.

Belongs here: the one order of events, the same whatever order they arrived in. Does not: looking at objects.

Sequencers order what S3 says about one key, a message group orders what one producer says; between them there are only
clocks. Comparing pairs by whatever they have in common runs in circles: A before B by sequencer, B before C and C
before A by clock. Letting any sequenced event beat any other lets an old write beat a newer announcement. So each event
in such a chain gets the latest time seen in the chain up to it, and these times decide. A chain keeps its own order
however wrong its clocks are, and events of different chains compare by time.

The order is one of the whole set: leaving out events that did not win can change who wins.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate

from kfm_pipelines.events.folding import IngestEvent

# Where times are equal, the store's own word counts more than a producer's, and an ordered one more than a single one.
Chain = tuple[int, str]
Place = tuple[datetime, Chain, int, str, str]
ALONE: Chain = (0, "")
SEQUENCED: Chain = (2, "")


def newest_per_object(events: Iterable[IngestEvent]) -> tuple[IngestEvent, ...]:
    """What each object now is: its newest write, unless it was deleted after that. Sorted by asset URI.

    Needs every event known about an object, removals included. A purged version counts as never written, whether the
    purge came before or after it; a purged delete marker, accordingly, as never set.
    """
    about: defaultdict[str, list[IngestEvent]] = defaultdict(list)
    for event in events:
        about[event.asset_uri].append(event)
    newest = (_newest(about[uri]) for uri in sorted(about))
    return tuple(event for event in newest if event is not None and event.change == "created")


def _newest(events: Sequence[IngestEvent]) -> IngestEvent | None:
    purged = {event.version_id for event in events if event.change == "purged"} - {None}
    counting = [event for event in events if event.change != "purged" and event.version_id not in purged]
    if len(counting) < 2:
        return counting[0] if counting else None
    return max(_placed(counting), key=lambda placed: placed[0])[1]


def _placed(events: Sequence[IngestEvent]) -> Iterator[tuple[Place, IngestEvent]]:
    """Each event with its place in the one order."""
    chains: defaultdict[Chain, list[IngestEvent]] = defaultdict(list)
    for event in events:
        chains[_chain(event)].append(event)
    for event in chains.pop(ALONE, []):
        yield (event.event_time, ALONE, 0, event.identity, repr(event)), event
    for chain, members in chains.items():
        ordered = sorted(members, key=_in_chain)
        latest = accumulate((event.event_time for event in ordered), max)
        for position, (event, time) in enumerate(zip(ordered, latest, strict=True)):
            yield (time, chain, position, event.identity, repr(event)), event


def _chain(event: IngestEvent) -> Chain:
    if event.sequencer is not None:
        return SEQUENCED
    if event.message_group is not None and event.group_sequence is not None:
        return (1, event.message_group)
    return ALONE


def _in_chain(event: IngestEvent) -> tuple[str, int, datetime, str, str]:
    """The clock only decides between events that have the same place in the chain.

    Without trailing zeros, hexadecimal text compares exactly as if the shorter one were padded with them.
    """
    sequencer = (event.sequencer or "").lower().rstrip("0")
    place = 0 if event.sequencer is not None else event.group_sequence or 0
    return (sequencer, place, event.event_time, event.identity, repr(event))

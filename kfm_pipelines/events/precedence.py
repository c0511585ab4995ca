"""Decides which of several events about one object counts, regardless of the order they arrived in.

Sequencers order S3's events about one key and message groups order one producer's events; between these chains there
are only clocks. Comparing pairs by what they have in common is circular: A before B by sequencer, B before C and C
before A by clock. Letting any sequenced event beat any other lets an old write beat a newer announcement. So each event
in a chain gets the latest time seen in the chain up to it, and these times decide. A chain keeps its order however
wrong its clocks are, and events of different chains compare by time.

The order depends on the whole set: leaving out events that lost can change the winner, unless they are superseded.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate

from kfm_pipelines.events.fold import IngestEvent

# At equal times the store's own event beats a producer's, and an ordered event beats an unordered one.
Chain = tuple[int, str]
Position = tuple[datetime, Chain, int]
UNCHAINED: Chain = (0, "")
# Satellite, level, path, row and day of acquisition; then the day of processing.
_LANDSAT_FOLDER = re.compile(
    r"/(?P<acquisition>L[A-Z]0\d_L\d\w\w_\d{6}_\d{8})_(?P<processed>\d{8}_02_\w\w)/$", re.ASCII
)
SEQUENCED: Chain = (2, "")


def newest_per_object(events: Iterable[IngestEvent]) -> tuple[IngestEvent, ...]:
    """Returns the newest write of each object that was not deleted after it, sorted by asset URI.

    Needs every known event about an object, removals included. A purged version counts as never written, whether the
    purge came before or after it; a purged delete marker as never set.
    """
    newest = (_newest_event(about) for _, about in sorted(_group_by_object(events).items()))
    return _newest_products([event for event in newest if event is not None and event.change == "created"])


def _newest_products(events: Sequence[IngestEvent]) -> tuple[IngestEvent, ...]:
    """Leaves out scenes of Landsat that were processed again: the provider removes the earlier product."""
    products = {event.asset_uri: found for event in events if (found := _LANDSAT_FOLDER.search(event.object_key))}
    newest: dict[str, str] = {}
    for found in products.values():
        acquired, processed = found["acquisition"], found["processed"]
        newest[acquired] = max(newest.get(acquired, ""), processed)
    replaced = {uri for uri, found in products.items() if found["processed"] != newest[found["acquisition"]]}
    return tuple(event for event in events if event.asset_uri not in replaced)


def superseded_identities(events: Iterable[IngestEvent], uncertain: Collection[str] = ()) -> set[str]:
    """Returns writes that can be forgotten, all or some, without ever changing which event counts.

    These are writes of purged versions, while the purge is remembered, and writes beaten by an event that no purge can
    take back because it has no version. In a chain the winner must come later and its clock must not be behind, because
    times pass down the chain; outside of chains a later time is enough. Uncertain events beat nothing: one day they may
    not count.
    """
    return {
        event.identity for about in _group_by_object(events).values() for event in _superseded_events(about, uncertain)
    }


def _group_by_object(events: Iterable[IngestEvent]) -> Mapping[str, Sequence[IngestEvent]]:
    about: defaultdict[str, list[IngestEvent]] = defaultdict(list)
    for event in events:
        about[_object_of(event)].append(event)
    return about


def _object_of(event: IngestEvent) -> str:
    """Returns the address; of a published key without its transform version, because a window counts once."""
    return event.asset_uri if event.scheme == "s3" else event.asset_uri.rpartition(":")[0]


def _newest_event(events: Sequence[IngestEvent]) -> IngestEvent | None:
    purged = _purged_versions(events)
    counting = [event for event in events if event.change != "purged" and event.version_id not in purged]
    if len(counting) < 2:
        return counting[0] if counting else None
    return max(_with_positions(counting), key=lambda placed: placed[0])[1]


def _superseded_events(events: Sequence[IngestEvent], uncertain: Collection[str]) -> Iterator[IngestEvent]:
    purged = _purged_versions(events)
    lasting = [
        event
        for event in events
        if event.change != "purged" and event.version_id is None and event.identity not in uncertain
    ]
    last = {chain: members[-1] for chain, members in _group_by_chain(lasting).items()}
    latest = max(((event.event_time, chain) for chain, event in last.items()), default=None)
    for event in events:
        if event.change != "created":
            continue
        chain = _chain_of(event)
        overtaken = chain == UNCHAINED and latest is not None and latest > (event.event_time, UNCHAINED)
        final = last.get(chain, event)
        beaten = _chain_sort_key(final) > _chain_sort_key(event) and final.event_time >= event.event_time
        if event.version_id in purged or overtaken or beaten:
            yield event


def _purged_versions(events: Sequence[IngestEvent]) -> set[str]:
    return {event.version_id for event in events if event.change == "purged" and event.version_id is not None}


def _with_positions(events: Sequence[IngestEvent]) -> Iterator[tuple[Position, IngestEvent]]:
    for chain, members in _group_by_chain(events).items():
        latest = accumulate((event.event_time for event in members), max)
        for position, (event, time) in enumerate(zip(members, latest, strict=True)):
            yield (time, chain, position), event


def _group_by_chain(events: Sequence[IngestEvent]) -> Mapping[Chain, Sequence[IngestEvent]]:
    """Sorts each chain. Events outside of chains form one that is ordered by their clocks alone."""
    chains: defaultdict[Chain, list[IngestEvent]] = defaultdict(list)
    for event in events:
        chains[_chain_of(event)].append(event)
    return {chain: sorted(members, key=_chain_sort_key) for chain, members in chains.items()}


def _chain_of(event: IngestEvent) -> Chain:
    if event.sequencer is not None:
        return SEQUENCED
    if event.message_group is not None and event.group_sequence is not None:
        return (1, event.message_group)
    return UNCHAINED


def _chain_sort_key(event: IngestEvent) -> tuple[str, int, datetime, str, str]:
    """Sorts by place in the chain, then by clock. Without trailing zeros, hexadecimal text compares as if padded."""
    sequencer = (event.sequencer or "").lower().rstrip("0")
    place = 0 if _chain_of(event) in (SEQUENCED, UNCHAINED) else event.group_sequence or 0
    return (sequencer, place, event.event_time, event.identity, repr(event))

"""The inputs of a key: fetches its objects as the events announced them, unless they are already applied."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields

import rfc8785

from kfm_pipelines.care.governance import governance_of
from kfm_pipelines.catalog.collections.tables import was_exempted
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import metered_span
from kfm_pipelines.errors import AttemptsExhausted, IntegrityBroken, KeyOutdated, PolicyRefused
from kfm_pipelines.events import CanonicalKey, IngestEvent, newest_per_object
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.members import (
    FetchedObjects,
    ObjectVersion,
    SharedObjects,
    is_folder_unchanged,
    is_unchanged,
    version_of,
)
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.scene import OUTSIDE
from kfm_pipelines.stages.compute.table import inputs_hash
from kfm_pipelines.state import transactions, wal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import FetchCounts, Revision, processed_objects
from kfm_pipelines.state.transactions import KeyFacts, load_facts
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout
from kfm_pipelines.watermarks import late_lane

# Enough to hide the latency of S3, and limited, because what is fetched ahead is held in memory.
OBJECTS_AHEAD = 16
BYTES_AHEAD = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    objects: tuple[SourceObject, ...]
    config: str
    fingerprint: str
    inputs_hash: str
    etags: Mapping[str, str]
    sizes: Mapping[str, int]
    sha256: Mapping[str, str]
    members: Mapping[str, Sequence[str]]  # the objects of each folder

    @property
    def fetches(self) -> FetchCounts:
        return FetchCounts(misses=len(self.objects))

    def as_detail(self) -> dict[str, object]:
        detail = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "objects"}
        return detail if self.members else {name: value for name, value in detail.items() if name != "members"}


@dataclass(frozen=True, slots=True)
class SkippedKey:
    """There is nothing to compute; `detail` is what the log keeps of it."""

    detail: Mapping[str, object]
    fetches: FetchCounts

    @property
    def note(self) -> str:
        return str(self.detail["reason"])


@dataclass(frozen=True, slots=True)
class KnownInputs:
    """What is known of a key when its transaction begins."""

    facts: KeyFacts
    events: tuple[IngestEvent, ...]  # the newest of each object

    def may_need_fetching(self, config: str) -> bool:
        current = self.facts.current
        return current is None or current.fingerprint != fingerprint(self.events, config)


def begin(services: Services, claims: Sequence[Claim]) -> dict[str, KnownInputs]:
    """Begins the transaction of each key over all events known now."""
    facts = load_facts(services.database, {claim.key: claim.epoch for claim in claims})
    known = transactions.begin(
        services.database, claims, lambda claim, events: _intent(events, facts[claim.key].current)
    )
    return {key: KnownInputs(facts[key], tuple(newest_per_object(events))) for key, events in known.items()}


def prepare(
    services: Services, dataset: Dataset, claim: Claim, known: KnownInputs, config: str, fetcher: "Fetcher"
) -> PreparedInputs | SkippedKey:
    """Skips the key if its inputs are already applied; otherwise fetches them."""
    current, events = known.facts.current, known.events
    if claim.attempts > services.settings.max_attempts:
        raise AttemptsExhausted(f"{claim.key}: {claim.attempts - 1} attempts ended without a result")
    if CanonicalKey.parse(claim.key).transform_version != dataset.key.transform_version:
        return _skip_other_version(services, dataset, claim, current)
    intact = current is not None and is_intact(services, dataset, current)
    if current is None and not events:
        return _skip_without_inputs(services, claim)
    if current and intact:
        promised = is_promised(services, dataset, current, fingerprint(events, config))
        if promised or _is_unchanged_at_source(services, dataset, claim, config, current, events):
            return _skip(current, FetchCounts(hits=len(events)))
    fetched = {event.asset_uri: _fetch_input(services, fetcher, claim, event) for event in events}
    prepared = build_inputs(config, events, fetched)
    if current and intact and current.inputs_hash == prepared.inputs_hash:
        return _skip(current, FetchCounts(misses=len(events)))
    return prepared


class Fetcher:
    """Fetches objects ahead of their use, a limited number of objects and bytes at a time. `assumed_bytes` is what an
    event stands for that announces no size. With `keep_bytes` an object that several keys share is fetched once."""

    def __init__(
        self,
        fetch: Callable[[IngestEvent], FetchedObjects],
        expected: Iterable[IngestEvent],
        assumed_bytes: int = 0,
        keep_bytes: int = 0,
    ) -> None:
        self._fetch = fetch
        self._assumed_bytes = assumed_bytes
        self._waiting = deque(expected)
        self._pool = ThreadPoolExecutor(OBJECTS_AHEAD, thread_name_prefix="fetch")
        self._ahead: dict[ObjectVersion, tuple[int, Future[FetchedObjects]]] = {}
        self._bytes_ahead = 0
        self._shared = SharedObjects(keep_bytes)
        self.reused = 0  # objects that were there already

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def fetch(self, event: IngestEvent, how: Callable[[IngestEvent], FetchedObjects] | None = None) -> FetchedObjects:
        """Call in the order of the expected events; some of them may be left out. `how` replaces the usual way for an
        object that is not here already."""
        self._fetch_ahead()
        version = version_of(event)
        fetched = self._shared.get(version)
        if fetched is not None:
            self.reused += 1
            return fetched
        fetched = self._take_ahead(version) if version in self._ahead else (how or self._fetch)(event)
        self._shared.keep(version, fetched)
        return fetched

    def _take_ahead(self, wanted: ObjectVersion) -> FetchedObjects:
        while True:
            version = next(iter(self._ahead))
            size, fetching = self._ahead.pop(version)
            self._bytes_ahead -= size
            if version == wanted:
                return fetching.result()

    def _fetch_ahead(self) -> None:
        while self._waiting and len(self._ahead) < OBJECTS_AHEAD and self._bytes_ahead < BYTES_AHEAD:
            event = self._waiting.popleft()
            version, size = version_of(event), self._assumed_bytes if event.size is None else event.size
            if version not in self._ahead and version not in self._shared:
                self._ahead[version] = size, self._pool.submit(self._fetch, event)
                self._bytes_ahead += size


def _fetch_input(services: Services, fetcher: Fetcher, claim: Claim, event: IngestEvent) -> FetchedObjects:
    try:
        return fetch_object(services, event, fetcher.fetch)
    except IntegrityBroken as error:
        held = late_lane.find_held_objects(services.database, claim.key).get(event.asset_uri)
        if held is None:
            raise
        raise IntegrityBroken(
            f"{error}; a late event about this object is held, {held[:16]}: see kfm late list"
        ) from error


def fetch_object(
    services: Services, event: IngestEvent, fetch_event: Callable[[IngestEvent], FetchedObjects]
) -> FetchedObjects:
    with metered_span(services, "fetch", {"kfm.object": event.asset_uri, "kfm.event_id": [event.identity]}):
        return fetch_event(event)


def build_inputs(config: str, events: Sequence[IngestEvent], fetched: Mapping[str, FetchedObjects]) -> PreparedInputs:
    """`fetched` is by the address of the event, which is that of its only object or of a folder."""
    late = {event.asset_uri for event in events if event.late}
    found = {uri: one for objects in fetched.values() for uri, one in objects.items()}
    objects = tuple(
        SourceObject(uri, one.data, announced in late)
        for announced, members in fetched.items()
        for uri, one in members.items()
    )
    return PreparedInputs(
        objects=objects,
        config=config,
        fingerprint=fingerprint(events, config),
        inputs_hash=inputs_hash(config, objects),
        etags={uri: one.etag for uri, one in found.items()},
        sizes={uri: len(one.data) for uri, one in found.items()},
        sha256={uri: one.sha256 for uri, one in found.items()},
        members={announced: sorted(one) for announced, one in fetched.items() if announced not in one},
    )


def fingerprint(events: Sequence[IngestEvent], config_digest: str) -> str:
    """Digest of what the events announce (location and ETag of every object, which are late) and the configuration."""
    promised = [[event.asset_uri, event.etag or event.identity] for event in events]
    late = [event.asset_uri for event in events if event.late]
    parts = ["kfm-fingerprint-1", config_digest, promised, *([late] if late else [])]
    return hashlib.sha256(rfc8785.dumps(parts)).hexdigest()


def is_promised(services: Services, dataset: Dataset, current: Revision, announced: str) -> bool:
    """Whether the current revision was made from what is announced, or from objects with the same rows of its key."""
    if current.fingerprint == announced or dataset.key.split_by is None:
        return current.fingerprint == announced
    with services.database.transaction() as connection:
        return announced in wal.skipped_fingerprints(connection, current.key, current.revision)


def _intent(events: Sequence[IngestEvent], current: Revision | None) -> dict[str, object]:
    return {
        "follows": current.revision if current else 0,
        "inputs": [
            {
                "uri": event.asset_uri,
                "etag": event.etag,
                "version": event.version_id,
                "size": event.size,
                "sequencer": event.sequencer,
                "event": event.identity,
                "late": event.late,
            }
            for event in newest_per_object(events)
        ],
    }


def is_intact(services: Services, dataset: Dataset, current: Revision) -> bool:
    """Whether readers still find what was applied. If not, the same inputs are published again."""
    layout, store, key = Layout(dataset.pipeline), services.store, current.key
    there = [layout.content(current.content_hash), layout.processed_data(key), layout.history(key)]
    there.append(layout.revision(key, current.revision))
    return store.digest(layout.item(key)) == current.item_hash and store.exists_all(there) == set(there)


def _is_unchanged_at_source(
    services: Services, dataset: Dataset, claim: Claim, config: str, current: Revision, events: Sequence[IngestEvent]
) -> bool:
    """Whether all objects are those of the current revision. S3 is asked for an ETag that an event leaves out."""
    known = processed_objects(services.database, claim.key)
    with services.database.transaction() as connection:
        begun = wal.entry_of(connection, claim.key, current.txn, Step.BEGIN)
        computed = wal.entry_of(connection, claim.key, current.txn, Step.COMPUTE)
    if begun is None or computed is None or computed.detail["config"] != config:
        return False
    members = computed.detail.get("members", {})
    if {uri for event in events for uri in members.get(event.asset_uri, [event.asset_uri])} != set(known):
        return False
    if {one["uri"] for one in begun.detail["inputs"] if one.get("late")} != {e.asset_uri for e in events if e.late}:
        return False
    etags = {uri: one.etag for uri, one in known.items()}
    return all(_is_event_applied(event, members.get(event.asset_uri), etags, dataset) for event in events)


def _is_event_applied(
    event: IngestEvent, members: Sequence[str] | None, etags: Mapping[str, str | None], dataset: Dataset
) -> bool:
    if members is not None:
        return is_folder_unchanged(event, {uri: etags[uri] for uri in members}, dataset)
    if event.etag is not None:
        return event.etag == etags[event.asset_uri]
    return is_unchanged(event, etags[event.asset_uri], dataset.input)


def skip_if_outside(computed: Computed, known: KnownInputs | None) -> SkippedKey | None:
    """Returns why there is nothing to publish: every scene lies outside the area, and none of this key was inside."""
    outside = computed.left_out.get(OUTSIDE)
    if not outside or computed.attachments or known is None or known.facts.current is not None:
        return None
    return SkippedKey({"reason": f"nothing to publish: {outside} {OUTSIDE}"}, FetchCounts())


def _skip(current: Revision, fetches: FetchCounts) -> SkippedKey:
    note = f"nothing changed since revision {current.revision}"
    return SkippedKey({"revision": current.revision, "reason": note}, fetches)


def _skip_other_version(services: Services, dataset: Dataset, claim: Claim, current: Revision | None) -> SkippedKey:
    """Skips a key of another transform version than the declared one, which must not publish under its name."""
    now = dataset.key.transform_version
    if current is None:
        raise KeyOutdated(
            f"{claim.key}: {dataset.dataset} is declared with version {now} now; upload its objects again to create a "
            "key of that version"
        )
    with services.database.transaction() as connection:
        exempted = was_exempted(connection, claim.key, current.content_hash)
    if exempted and governance_of(services, dataset).rules_for(claim.key).exemption is None:
        raise PolicyRefused(
            f"{claim.key}: revision {current.revision} is public unmasked and no exemption covers it any more, but "
            f"{dataset.dataset} is declared with version {now} now, so it cannot be masked; declare "
            f"{CanonicalKey.parse(claim.key).transform_version} again until this key is published masked"
        )
    note = f"revision {current.revision} stays as it is: {dataset.dataset} is declared with version {now} now"
    return SkippedKey({"revision": current.revision, "reason": note}, FetchCounts())


def _skip_without_inputs(services: Services, claim: Claim) -> SkippedKey:
    held = late_lane.find_held_objects(services.database, claim.key)
    note = "every object of this key is gone, and nothing of it is published"
    if held:
        note = f"nothing of this key counts yet: late events about {len(held)} objects are held; see kfm late list"
    return SkippedKey({"reason": note}, FetchCounts())

"""Reproduces a published release: the same inputs under the original declaration must give the same bytes.

If anything differs, it is reported and nothing is published: bytes must not return under a changed policy, and
different bytes are not the same release. Files missing from the store are restored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kfm_pipelines.care.governance import governance_of
from kfm_pipelines.catalog.stac.item import page_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken, ObjectForbidden, ObjectMissing, ReplayRefused
from kfm_pipelines.events import IngestEvent, newest_per_object
from kfm_pipelines.inbox.record import archive_events
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.inputs import (
    Fetcher,
    PreparedInputs,
    build_inputs,
    fetch_object,
    fingerprint,
    is_promised,
)
from kfm_pipelines.stages.compute.members import FetchedObjects, fetch_recorded
from kfm_pipelines.stages.config.changes import NO_SNAPSHOT, UNPUBLISHED, configuration_changes
from kfm_pipelines.stages.config.key_config import DECLARATION, KeyConfigs
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.state import transactions
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.state.keys import Claim, dataset_of_key
from kfm_pipelines.state.last_transaction import AppliedTransaction, applied_transaction
from kfm_pipelines.state.revisions import current_revision
from kfm_pipelines.state.transactions import KeyFacts
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout, Store

REPRODUCED = "reproduced byte for byte"


def changes_since_publication(services: Services, key: str) -> list[str]:
    """Lists what has changed since the key was published, except the content of its objects."""
    applied = applied_transaction(services.database, key)
    if applied is None:
        return [UNPUBLISHED]
    with services.database.transaction() as connection:
        known = events_of(connection, key)
    dataset = services.datasets[dataset_of_key(services.database, key)]
    configured = configuration_changes(services, dataset, [key])[key]
    if not configured and _has_same_rows(services, dataset, key, newest_per_object(known)):
        return []
    return [*configured, *_changed_events(applied, newest_per_object(known))]


def _has_same_rows(services: Services, dataset: Dataset, key: str, events: Sequence[IngestEvent]) -> bool:
    """Whether the objects of a key that shares them have changed, but none of its own rows."""
    current = current_revision(services.database, key) if dataset.key.split_by else None
    if current is None:
        return False
    config = governance_of(services, dataset).config_digest(key)
    return is_promised(services, dataset, current, fingerprint(events, config))


def declaration_digest(database: Database, key: str) -> str:
    """Returns the digest of the declaration that the key was published under."""
    return str(_require_applied(database, key).computed["frozen"][DECLARATION])


def prepare_reproduction(services: Services, claim: Claim, configs: KeyConfigs, fetcher: Fetcher) -> PreparedInputs:
    """Begins with exactly the inputs of the published release and fetches them; waiting events are left waiting."""
    applied = applied_transaction(services.database, claim.key)
    intent = {"follows": applied.revision, "inputs": applied.inputs} if applied else {"follows": 0, "inputs": []}
    known = transactions.begin(services.database, [claim], lambda *_: intent, take_events=False)[claim.key]
    for error in archive_events(services, [claim.key], recheck_store=True).values():
        raise error
    _refuse_if_changed(claim.key, changes_since_publication(services, claim.key))
    applied, original = _require_applied(services.database, claim.key), configs.for_key(claim.key)
    events = _original_events(applied, known)
    fetched = _fetch_inputs(services, applied, events, original.dataset, fetcher)
    prepared = build_inputs(original.governance.config_digest(claim.key), events, fetched)
    if prepared.inputs_hash != applied.computed["inputs_hash"]:
        _refuse_if_changed(
            claim.key, ["its inputs have another digest, though nothing recorded about them has changed"]
        )
    return replace(prepared, fingerprint=applied.computed["fingerprint"])


def refuse_different_data(database: Database, facts: KeyFacts) -> None:
    """Raises ReplayRefused when the masked data differs from the published data; call before staging."""
    now, then = facts.detail(Step.MASK)["content_hash"], _require_applied(database, facts.key).published
    if now != then["content_hash"]:
        was = then["content_hash"][:12]
        _refuse_if_changed(facts.key, [f"its data comes out as {now[:12]} and was {was}, under the same configuration"])


def is_still_published(services: Services, dataset: Dataset, release: Release) -> bool:
    """Whether readers still find the whole release. Raises ReplayRefused when it is not the published one."""
    then = Release.from_values(_require_applied(services.database, release.key).published)
    _refuse_if_changed(release.key, [f"its {part} comes out otherwise" for part in _differing_parts(then, release)])
    return _is_complete(services.store, Layout(dataset.pipeline), release)


def _require_applied(database: Database, key: str) -> AppliedTransaction:
    applied = applied_transaction(database, key)
    if applied is None or "frozen" not in applied.computed:
        raise ReplayRefused(f"{key}: {UNPUBLISHED if applied is None else NO_SNAPSHOT}")
    return applied


def _refuse_if_changed(key: str, changes: Sequence[str]) -> None:
    if changes:
        raise ReplayRefused(f"{key}: cannot be reproduced: {'; '.join(changes)}")


def _changed_events(applied: AppliedTransaction, now: Sequence[IngestEvent]) -> Iterator[str]:
    """Yields the objects that were added, removed or written again since. Events without an ETag prove nothing."""
    then = {str(one["uri"]): one for one in applied.inputs}
    for uri in sorted(then.keys() - {event.asset_uri for event in now}):
        yield f"{uri} is no input any more"
    for event in now:
        one = then.get(event.asset_uri)
        if one is None:
            yield f"{event.asset_uri} came after revision {applied.revision}"
            continue
        etag = applied.computed["etags"].get(event.asset_uri)  # a folder has none
        if event.etag not in (None, etag):
            yield f"{event.asset_uri} had ETag {etag} and was written again with {event.etag}"
        if event.late != one.get("late", False):
            yield f"{event.asset_uri} is {'late' if event.late else 'not late any more'}"


def _original_events(applied: AppliedTransaction, known: Sequence[IngestEvent]) -> list[IngestEvent]:
    """Returns the original inputs as events that announce exactly what was fetched then."""
    by_identity = {event.identity: event for event in known}
    by_object = {event.asset_uri: event for event in known}
    return [
        replace(
            by_identity.get(one["event"], by_object[one["uri"]]),
            identity=one["event"],
            version_id=one["version"],
            etag=applied.computed["etags"].get(one["uri"]),
            size=applied.computed["sizes"].get(one["uri"]),
            late=one.get("late", False),
        )
        for one in applied.inputs
    ]


def _fetch_inputs(
    services: Services, applied: AppliedTransaction, events: Sequence[IngestEvent], dataset: Dataset, fetcher: Fetcher
) -> dict[str, FetchedObjects]:
    fetched, changes = {}, []
    members, etags = applied.computed.get("members", {}), applied.computed["etags"]
    for event in events:
        uris = members.get(event.asset_uri, [event.asset_uri])
        recorded = partial(
            fetch_recorded, etags={uri: etags[uri] for uri in uris}, source=dataset.input, store=services.store
        )
        try:
            fetched[event.asset_uri] = fetch_object(services, event, partial(fetcher.fetch, how=recorded))
        except (IntegrityBroken, ObjectMissing, ObjectForbidden) as error:
            changes.append(str(error))
            continue
        for uri, one in fetched[event.asset_uri].items():
            then = applied.computed["sha256"][uri]
            if one.sha256 != then:
                changes.append(f"{uri} had SHA-256 {then[:12]} and has {one.sha256[:12]}")
    _refuse_if_changed(applied.key, changes)
    return fetched


def _differing_parts(then: Release, now: Release) -> Iterator[str]:
    if now.content_hash != then.content_hash:
        yield "data"
    if now.item_hash != then.item_hash:
        yield "Item"
    before, after = ({**one.files, **one.documents, **one.records, **one.shared} for one in (then, now))
    yield from sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _is_complete(store: Store, layout: Layout, release: Release) -> bool:
    digests = {
        layout.item(release.key): release.item_hash,
        layout.processed_data(release.key): release.content_hash,
        layout.content(release.content_hash): release.content_hash,
        **{layout.data_file(digest, name): digest for name, digest in release.files.items()},
        **{layout.document(digest): digest for digest in (*release.documents.values(), *release.records.values())},
    }
    there = [
        layout.history(release.key),
        layout.revision(release.key, release.revision),
        layout.page(page_of(release.key)),
        layout.collection(),
        *release.shared_paths(layout).values(),
    ]
    return all(store.digest(path) == digest for path, digest in digests.items()) and all(map(store.exists, there))

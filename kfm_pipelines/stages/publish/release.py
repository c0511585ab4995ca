"""Releases of keys: staged from the facts in the log, published under the keys' locks, finished after any crash."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from uuid import uuid4

from kfm_pipelines.care.governance import Governance, KeyRules, governance_of
from kfm_pipelines.care.secrets import keyed_digest
from kfm_pipelines.catalog.collections.tables import find_withdrawn_contents
from kfm_pipelines.catalog.facts import ATTESTATION, MANIFEST, InputFacts, ReleaseFacts
from kfm_pipelines.catalog.trust.environment import environment_facts, sbom, storage_facts
from kfm_pipelines.catalog.trust.signer import signer_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import (
    CareRefused,
    GateRefused,
    IntegrityBroken,
    KfmError,
    ObjectMissing,
    OwnershipLost,
    PointerMoved,
    PolicyRefused,
    ReviewRefused,
    ServiceUnavailable,
    SignatureRefused,
)
from kfm_pipelines.events.notice import read_release_uri
from kfm_pipelines.gates import GATES, RELEASE_GATES, TABLE_GATES
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings
from kfm_pipelines.stages.publish.promote import (
    IntendedRelease,
    KeyFailures,
    build_history,
    create_objects,
    fix_schema,
    read_staged,
    replace_data,
    swap_items,
    write_current_if_missing,
)
from kfm_pipelines.stages.publish.stage import Attester, Candidate, Release, care_facts, stage
from kfm_pipelines.stages.publish.tables import CommittedRelease, Publication, lock_keys, open_publication
from kfm_pipelines.stages.validate.report import remove_replaced
from kfm_pipelines.state import kill_switch, transactions, wal
from kfm_pipelines.state.keys import Claim, Claims
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.state.transactions import KeyFacts, load_facts
from kfm_pipelines.state.verdicts import require_green
from kfm_pipelines.state.wal import Entry, Step, fetched_inputs
from kfm_pipelines.stores import Layout

log = logging.getLogger(__name__)
MAX_COMPLETED_PER_CALL = 50


def stage_candidate(
    services: Services, dataset: Dataset, claim: Claim, governance: Governance, facts: KeyFacts
) -> Release:
    rules = governance.rules_for(claim.key)
    computed = facts.detail(Step.COMPUTE)
    inputs_hash, content_hash = computed["inputs_hash"], facts.detail(Step.VALIDATE)["content_hash"]
    start, end = facts.window
    described = ReleaseFacts(
        key=claim.key,
        window_start=start,
        window_end=end,
        inputs=tuple(input_facts(one, computed, rules) for one in fetched_inputs(facts.detail(Step.BEGIN), computed)),
        inputs_hash=keyed_digest(rules.secret, inputs_hash) if rules.secret else inputs_hash,
        config=computed["config"],
        care=care_facts(governance, rules, facts.detail(Step.MASK)["measures"]),
        gates=GATES,
        table=rules.published_table(dataset),
        environment=environment_facts(),
        storage=storage_facts(services.settings.store_url),
    )
    revision = _next_revision(facts, inputs_hash, content_hash)
    candidate = Candidate(described, claim.epoch, revision, inputs_hash, computed["fingerprint"])
    files = facts.detail(Step.MASK).get("files", {})
    return stage(services.store, dataset, candidate, content_hash, Attester(signer_of(services), sbom()), files)


def staged_release(facts: KeyFacts) -> Release:
    return Release.from_values(facts.detail(Step.STAGE_ATOMIC))


def intend(
    services: Services, dataset: Dataset, claim: Claim, governance: Governance, facts: KeyFacts
) -> IntendedRelease:
    """Returns the staged release if the recorded verdicts and reviews allow exactly these bytes."""
    release = staged_release(facts)
    _refuse_unless_allowed(governance, facts, release)
    staged = read_staged(services.store, Layout(dataset.pipeline), release, claim.epoch)
    return IntendedRelease(claim, claim.epoch, release, staged, facts)


def complete(services: Services, dataset: Dataset, releases: Sequence[IntendedRelease]) -> KeyFailures:
    """Publishes releases whose intent is logged, and returns those that could not be. If one of them makes the
    transaction of all impossible, each is completed alone."""
    failures: KeyFailures = {}
    try:
        failures = _complete_together(services, dataset, releases)
    except Exception as error:  # noqa: BLE001 - any error fails these releases only
        if len(releases) == 1:
            return {releases[0].key: error}
        for number, one in enumerate(releases):
            left = replace(one, staged=None) if is_visible(services, dataset, one.release) else one
            failures |= complete(services, dataset, [left])
            if isinstance(failures.get(one.key), ServiceUnavailable):  # for the others too
                return failures | dict.fromkeys((other.key for other in releases[number:]), failures[one.key])
    return failures


def finish(
    services: Services, dataset: Dataset, claim: Claim, intent: Entry, governance: Callable[[], Governance]
) -> bool:
    """Completes a predecessor's intended publication. Returns False, and abandons the intent, when readers have not
    seen it and this process has not staged it, it is no longer allowed, or the Item was changed."""
    release = Release.from_values(intent.detail)
    facts = load_facts(services.database, {claim.key: intent.txn})[claim.key]
    try:
        staged = None
        if not is_visible(services, dataset, release):
            _refuse_unless_allowed(governance(), facts, release)
            staged = read_staged(services.store, Layout(dataset.pipeline), release, intent.txn)
        for error in complete(services, dataset, [IntendedRelease(claim, intent.txn, release, staged, facts)]).values():
            raise error
    except (
        IntegrityBroken, ObjectMissing, PointerMoved, GateRefused, PolicyRefused, ReviewRefused, SignatureRefused
    ) as error:  # fmt: skip
        if is_visible(services, dataset, release):
            raise
        transactions.abandon_intent(services.database, claim, intent, str(error))
        return False
    return True


def is_visible(services: Services, dataset: Dataset, release: Release) -> bool:
    """Whether readers see the release. An Item that a restoration leaves as it is proves nothing."""
    item = services.store.digest(Layout(dataset.pipeline).item(release.key))
    return item == release.item_hash and item != release.expected_item


def complete_visible_publications(services: Services) -> list[str]:
    """Completes publications of killed datasets that readers see, because the log has to record them; others wait for
    `kfm unkill`. Returns what could not be completed, and why."""
    problems = []
    for name, key in kill_switch.interrupted_publications(services.database, MAX_COMPLETED_PER_CALL):
        try:
            if name in services.datasets:
                _complete_if_visible(services, services.datasets[name], key)
        except OwnershipLost:
            continue  # another worker has taken it
        except KfmError as error:
            problems.append(f"publication of {key}: {error}")
    return problems


def _complete_if_visible(services: Services, dataset: Dataset, key: str) -> None:
    with services.database.transaction() as connection:
        intent = wal.last_entry(connection, key)
    if intent is None or intent.step is not Step.PUBLISH:
        return
    if not is_visible(services, dataset, Release.from_values(intent.detail)):
        return
    owner = f"completion-{uuid4()}"
    claims = Claims(services.database, owner, services.settings.lease_seconds, dataset=dataset.dataset)
    claim = claims.take(key)
    done = False
    try:
        with claims.keep_alive():
            # Read again under our claim: another worker may have completed it.
            intent = transactions.close_abandoned(services.database, claim)
            governance = partial(governance_of, services, dataset)
            done = intent is not None and finish(services, dataset, claim, intent, governance)
    finally:
        if not done:
            delay = services.retries.delay(claim.attempts, services.random)
            reason = "its publication could not be completed"
            transactions.hand_back(services.database, claim, delay=delay, reason=reason, count_attempt=False)


def _refuse_unless_allowed(governance: Governance, facts: KeyFacts, release: Release) -> None:
    """Refuses unless it was computed under this configuration, every gate is green and any required review is given."""
    key = facts.key
    if facts.detail(Step.COMPUTE)["config"] != governance.config_digest(key):
        raise GateRefused(f"{key}: the policy, an exemption or the declaration has changed since it was computed")
    require_green(key, facts.verdicts, TABLE_GATES, release.content_hash)
    require_green(key, facts.verdicts, RELEASE_GATES, release.digest, CareRefused)
    if not governance.oversight.is_approved(key, release.digest):
        raise ReviewRefused(f"{key}: nobody with authority has approved this release")


def sinks_of(settings: Settings, dataset: Dataset) -> tuple[Sink, ...]:
    """Returns what else shows the publications of a dataset, besides the catalog."""
    return (*((Sink.TABLE,) if dataset.tables else ()), *((Sink.GRAPH,) if settings.graph_url else ()))


def _complete_together(services: Services, dataset: Dataset, releases: Sequence[IntendedRelease]) -> KeyFailures:
    """Uploads before it locks: others may need the keys meanwhile, and uploads may take minutes."""
    store, layout = services.store, Layout(dataset.pipeline)
    visible = all(one.staged is None for one in releases)
    with open_publication(services.database) as connection:
        failures = create_objects(store, layout, releases)
        remaining = [one for one in releases if one.key not in failures]
        claims, sinks = [one.claim for one in remaining], sinks_of(services.settings, dataset)
        publication = lock_keys(connection, dataset.dataset, claims, visible=visible, sinks=sinks)
        failures |= publication.refused
        remaining = [one for one in remaining if one.key not in failures]
        for one in remaining:
            write_current_if_missing(services, dataset, one, publication)
        failures |= fix_schema(publication, remaining)
        remaining = [one for one in remaining if one.key not in failures]
        if not visible:
            publication.refuse_if_killed()
        for step in (swap_items, replace_data):
            failures |= step(store, layout, remaining)
            remaining = [one for one in remaining if one.key not in failures]
        missing, history_failures = _write_histories(services, dataset, remaining, publication)
        failures |= history_failures
        committed = [one for one in remaining if one.key not in failures]
        publication.commit([_published(one, missing[one.key]) for one in committed])
    try:
        remove_replaced(services, {one.key: one.txn for one in committed})
    except KfmError as error:  # they are published, and the nightly purge removes the rest
        log.warning("could not remove quarantined files of published keys: %s", error)
    return failures


def _write_histories(
    services: Services, dataset: Dataset, releases: Sequence[IntendedRelease], publication: Publication
) -> tuple[dict[str, list[int]], KeyFailures]:
    """Returns the missing earlier revisions of each key, and the failures."""
    layout = Layout(dataset.pipeline)
    withdrawn = find_withdrawn_contents(publication.connection, {one.key: one.release.content_hash for one in releases})
    published = publication.intended_at({one.key: (one.release.revision, one.txn) for one in releases})
    files: dict[str, bytes] = {}
    owners: dict[str, str] = {}
    missing: dict[str, list[int]] = {}
    failures: KeyFailures = {}
    for one in releases:
        try:
            for content_hash in withdrawn.get(one.key, ()):
                services.store.discard(layout.content(content_hash))
            documents, missing[one.key] = build_history(
                services, dataset, one, published[one.key], publication, withdrawn.get(one.key, ())
            )
        except Exception as error:  # noqa: BLE001 - any error fails this release only
            failures[one.key] = error
        else:
            files |= documents
            owners |= dict.fromkeys(documents, one.key)
    return missing, failures | {owners[path]: error for path, error in services.store.write_all(files).items()}


def _published(one: IntendedRelease, missing: Sequence[int]) -> CommittedRelease:
    begun, computed = (one.facts.details.get(step, {}) for step in (Step.BEGIN, Step.COMPUTE))
    inputs, found = fetched_inputs(begun, computed), computed.get("etags", {})
    records = {"manifest": MANIFEST, "attestation": ATTESTATION}
    return CommittedRelease(
        claim=one.claim,
        revision=Revision.from_values(asdict(one.release), txn=one.txn, run_id=one.claim.owner),
        records={kind: one.release.records[name] for kind, name in records.items() if name in one.release.records},
        inputs=[{**source, "etag": found.get(source["uri"], source["etag"])} for source in inputs],
        note=_missing_history_note(one.release.revision, missing),
    )


def _missing_history_note(revision: int, missing: Sequence[int]) -> str | None:
    if not missing:
        return None
    which = (
        f"revision {missing[0]} is"
        if len(missing) == 1
        else f"{len(missing)} revisions from {missing[0]} to {missing[-1]} are"
    )
    return f"revision {revision}; {which} not in the store any more and not restored"


def input_facts(source: Mapping[str, Any], computed: Mapping[str, Any], rules: KeyRules) -> InputFacts:
    """Describes an input. For masked data, digests are keyed and sizes left out, so that guesses cannot be tested."""
    uri, late = source["uri"], source.get("late", False)
    etag, sha256 = computed["etags"][uri], computed["sha256"][uri]
    version = sha256 if read_release_uri(uri) else source["version"]  # what upstreams release is public
    if not rules.secret:
        size = computed["sizes"][uri]
        return InputFacts(uri, version, etag, size, {"sha256": sha256}, source["event"], late)
    digest = {"hmacSha256": keyed_digest(rules.secret, sha256)}
    return InputFacts(uri, version, None, None, digest, keyed_digest(rules.secret, source["event"]), late)


def _next_revision(facts: KeyFacts, inputs_hash: str, content_hash: str) -> int:
    """Returns the next number, or the current one when it is being restored from the same inputs."""
    current = facts.current
    if current is None:
        return 1
    if current.inputs_hash != inputs_hash:
        return current.revision + 1
    if current.content_hash != content_hash:
        raise IntegrityBroken(
            f"{facts.key}: the inputs of revision {current.revision} now give different bytes, so it cannot be "
            "restored; use the library versions it was made with, or a new transform_version"
        )
    return current.revision

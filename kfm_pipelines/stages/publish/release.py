"""A key's release: staged from the log's own facts, published under the key's lock, finished after any crash."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kfm_pipelines.care.governance import Governance, KeyRules
from kfm_pipelines.care.review.decide import is_approved
from kfm_pipelines.care.secrets import keyed_digest
from kfm_pipelines.catalog.facts import ATTESTATION, MANIFEST, InputFacts
from kfm_pipelines.catalog.trust.environment import environment_facts, sbom, storage_facts
from kfm_pipelines.catalog.trust.signer import signer_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import (
    CareRefused,
    GateRefused,
    IntegrityBroken,
    KfmError,
    PointerMoved,
    PolicyRefused,
    ReviewRefused,
    SignatureRefused,
)
from kfm_pipelines.gates import GATES, RELEASE_GATES, TABLE_GATES
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.inputs import window_of_key
from kfm_pipelines.stages.publish.care_facts import care_facts
from kfm_pipelines.stages.publish.commit import open_publication
from kfm_pipelines.stages.publish.history import write_current_if_missing, write_history
from kfm_pipelines.stages.publish.promote import promote, verify_staged
from kfm_pipelines.stages.publish.stage import Attester, Candidate, Release, stage
from kfm_pipelines.stages.validate.quarantine import remove_replaced
from kfm_pipelines.state import kill_switch, transactions, wal
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import RecordDigests, Revision, current_revision
from kfm_pipelines.state.verdicts import require_green
from kfm_pipelines.state.wal import Entry, Step
from kfm_pipelines.stores import Layout

log = logging.getLogger(__name__)


def stage_candidate(services: Services, dataset: Dataset, claim: Claim, governance: Governance) -> Release:
    rules = governance.rules_for(claim.key)
    begun = detail_of(services.database, claim, Step.BEGIN)
    computed = detail_of(services.database, claim, Step.COMPUTE)
    masked = detail_of(services.database, claim, Step.MASK)
    judged = detail_of(services.database, claim, Step.VALIDATE)
    inputs_hash = computed["inputs_hash"]
    start, end = window_of_key(services.database, claim.key)
    candidate = Candidate(
        key=claim.key,
        epoch=claim.epoch,
        revision=_next_revision(services.database, claim.key, inputs_hash, judged["content_hash"]),
        window_start=start,
        window_end=end,
        inputs=tuple(_input_facts(one, computed, rules) for one in begun["inputs"]),
        inputs_hash=inputs_hash,
        fingerprint=computed["fingerprint"],
        config=computed["config"],
        public_inputs_hash=keyed_digest(rules.secret, inputs_hash) if rules.secret else inputs_hash,
        care=care_facts(governance, rules, masked["measures"]),
        table=rules.published_table(dataset),
        gates=GATES,
        environment=environment_facts(),
        storage=storage_facts(services.settings.store_url),
    )
    return stage(services.store, dataset, candidate, judged["content_hash"], Attester(signer_of(services), sbom()))


def staged_release(database: Database, claim: Claim) -> Release:
    return Release.from_detail(dict(detail_of(database, claim, Step.STAGE_ATOMIC)))


def publish(services: Services, dataset: Dataset, claim: Claim, governance: Governance) -> Release:
    """Trust nobody: verdicts and reviews must be there, and about exactly the bytes that are staged."""
    release = staged_release(services.database, claim)
    _refuse_unless_allowed(services.database, claim, governance, release, claim.epoch)
    verify_staged(services.store, Layout(dataset.pipeline), release, claim.epoch)
    # Asked again under the lock; here it only keeps an intent from being written that nobody may carry out.
    with services.database.transaction() as connection:
        kill_switch.refuse_if_killed(connection, dataset.dataset)
    transactions.advance(services.database, claim, Step.PUBLISH, release.as_detail())
    _complete(services, dataset, claim, release, claim.epoch, visible=False)
    return release


def finish(
    services: Services, dataset: Dataset, claim: Claim, intent: Entry, governance: Callable[[], Governance]
) -> bool:
    """Roll a predecessor's publication forward: its intent is in the log, so it must become true. False when readers
    have seen nothing of it and it must not, or cannot: what allowed it does not any more, or was never there, or
    somebody changed the staged files or the Item by hand."""
    release = Release.from_detail(dict(intent.detail))
    try:
        seen = is_visible(services, dataset, intent)
        if not seen:
            _refuse_unless_allowed(services.database, claim, governance(), release, intent.txn)
        _complete(services, dataset, claim, release, intent.txn, visible=seen)
    except (IntegrityBroken, PointerMoved, GateRefused, PolicyRefused, ReviewRefused, SignatureRefused) as error:
        if is_visible(services, dataset, intent):
            raise
        transactions.abandon_intent(services.database, claim, intent, str(error))
        return False
    return True


def is_visible(services: Services, dataset: Dataset, intent: Entry) -> bool:
    """Whether readers see the intended release already."""
    item = Layout(dataset.pipeline).item(intent.key)
    return services.store.digest(item) == Release.from_detail(dict(intent.detail)).item_hash


def _refuse_unless_allowed(
    database: Database, claim: Claim, governance: Governance, release: Release, txn: int
) -> None:
    """The policy and exemptions it was computed under still hold, every gate is green about it, and whoever has to has
    said yes."""
    computed = _entry_of(database, claim.key, txn, Step.COMPUTE)
    if computed["config"] != governance.config_digest(claim.key):
        raise GateRefused(f"{claim.key}: the policy, an exemption or the declaration has changed since it was computed")
    require_green(database, claim.key, txn, TABLE_GATES, release.content_hash)
    require_green(database, claim.key, txn, RELEASE_GATES, release.digest, CareRefused)
    if not is_approved(governance.oversight, claim.key, release.digest):
        raise ReviewRefused(f"{claim.key}: nobody with authority has approved this release")


def _complete(services: Services, dataset: Dataset, claim: Claim, release: Release, txn: int, *, visible: bool) -> None:
    with open_publication(services.database, claim, dataset.dataset, visible=visible) as locked:
        write_current_if_missing(services, dataset, release, locked)
        promote(services.store, Layout(dataset.pipeline), release, txn, before_swap=locked.refuse_if_killed)
        withdrawn = locked.withdrawn_contents(release.content_hash)
        for content_hash in withdrawn:
            services.store.discard(Layout(dataset.pipeline).content(content_hash))
        lost = write_history(services, dataset, release, txn, locked, withdrawn)
        records = RecordDigests(release.records.get(MANIFEST), release.records.get(ATTESTATION))
        locked.commit(
            _revision(release, claim, txn), records, txn=txn, note=_missing_history_note(release.revision, lost)
        )
    try:
        remove_replaced(services, claim.key, txn)
    except KfmError as error:  # it is published, and the nightly purge removes what is left
        log.warning("%s: what was refused of it earlier is still there: %s", claim.key, error)


def _missing_history_note(revision: int, missing: Sequence[int]) -> str | None:
    """What the log says of a revision whose history is not whole."""
    if not missing:
        return None
    which = (
        f"revision {missing[0]} is"
        if len(missing) == 1
        else f"{len(missing)} revisions from {missing[0]} to {missing[-1]} are"
    )
    return f"revision {revision}; {which} not in the store any more and not restored"


def _revision(release: Release, claim: Claim, txn: int) -> Revision:
    return Revision(
        key=release.key,
        revision=release.revision,
        txn=txn,
        inputs_hash=release.inputs_hash,
        fingerprint=release.fingerprint,
        content_hash=release.content_hash,
        item_hash=release.item_hash,
        rows=release.rows,
        bytes=release.bytes,
        bbox=release.bbox,
        run_id=claim.owner,
    )


def _input_facts(source: Mapping[str, Any], computed: Mapping[str, Any], rules: KeyRules) -> InputFacts:
    """What may be told of an object: of one that is masked nothing that guesses could be tried against."""
    uri, version, late = source["uri"], source["version"], source.get("late", False)
    etag, sha256 = computed["etags"][uri], computed["sha256"][uri]
    if not rules.secret:
        size = computed["sizes"][uri]
        return InputFacts(uri, version, etag, size, {"sha256": sha256}, source["event"], late)
    digest = {"hmacSha256": keyed_digest(rules.secret, sha256)}
    return InputFacts(uri, version, None, None, digest, keyed_digest(rules.secret, source["event"]), late)


def _next_revision(database: Database, key: str, inputs_hash: str, content_hash: str) -> int:
    """One more than the current one, or the current one again when it is being restored from the same inputs."""
    current = current_revision(database, key)
    if current is None:
        return 1
    if current.inputs_hash != inputs_hash:
        return current.revision + 1
    if current.content_hash != content_hash:
        raise IntegrityBroken(
            f"{key}: the inputs of revision {current.revision} now give other bytes than it had, so it cannot be "
            "restored; use the library versions of then, or a new transform_version"
        )
    return current.revision


def detail_of(database: Database, claim: Claim, step: Step) -> Mapping[str, Any]:
    return _entry_of(database, claim.key, claim.epoch, step)


def _entry_of(database: Database, key: str, txn: int, step: Step) -> Mapping[str, Any]:
    with database.transaction() as connection:
        entry = wal.entry_of(connection, key, txn, step)
    if entry is None:
        raise GateRefused(f"{key}: this transaction has not been through {step}; run the whole group of assets")
    return entry.detail

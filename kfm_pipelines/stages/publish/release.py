"""A key's release: staged from the facts in the log, published under the key's lock, finished after any crash."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any
from uuid import uuid4

from kfm_pipelines.care.governance import Governance, KeyRules, governance_of
from kfm_pipelines.care.review.decide import is_approved
from kfm_pipelines.care.secrets import keyed_digest
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
    SignatureRefused,
)
from kfm_pipelines.gates import GATES, RELEASE_GATES, TABLE_GATES
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.promote import promote, read_staged, write_current_if_missing, write_history
from kfm_pipelines.stages.publish.stage import Attester, Candidate, Release, StagedFiles, care_facts, stage
from kfm_pipelines.stages.publish.tables import open_publication
from kfm_pipelines.stages.validate.report import remove_replaced
from kfm_pipelines.state import kill_switch, transactions, wal
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.keys import Claim, Claims, window_of_key
from kfm_pipelines.state.revisions import Revision, current_revision
from kfm_pipelines.state.verdicts import require_green
from kfm_pipelines.state.wal import Entry, Step
from kfm_pipelines.stores import Layout

log = logging.getLogger(__name__)
MAX_COMPLETED_PER_CALL = 50


def stage_candidate(services: Services, dataset: Dataset, claim: Claim, governance: Governance) -> Release:
    rules = governance.rules_for(claim.key)
    begun = detail_of(services.database, claim, Step.BEGIN)
    computed = detail_of(services.database, claim, Step.COMPUTE)
    masked = detail_of(services.database, claim, Step.MASK)
    judged = detail_of(services.database, claim, Step.VALIDATE)
    inputs_hash = computed["inputs_hash"]
    start, end = window_of_key(services.database, claim.key)
    facts = ReleaseFacts(
        key=claim.key,
        window_start=start,
        window_end=end,
        inputs=tuple(input_facts(one, computed, rules) for one in begun["inputs"]),
        inputs_hash=keyed_digest(rules.secret, inputs_hash) if rules.secret else inputs_hash,
        config=computed["config"],
        care=care_facts(governance, rules, masked["measures"]),
        gates=GATES,
        table=rules.published_table(dataset),
        environment=environment_facts(),
        storage=storage_facts(services.settings.store_url),
    )
    revision = _next_revision(services.database, claim.key, inputs_hash, judged["content_hash"])
    candidate = Candidate(facts, claim.epoch, revision, inputs_hash, computed["fingerprint"])
    return stage(services.store, dataset, candidate, judged["content_hash"], Attester(signer_of(services), sbom()))


def staged_release(database: Database, claim: Claim) -> Release:
    return Release.from_values(detail_of(database, claim, Step.STAGE_ATOMIC))


def publish(services: Services, dataset: Dataset, claim: Claim, governance: Governance) -> Release:
    """Publishes the staged release if the recorded verdicts and reviews allow exactly these bytes."""
    release = staged_release(services.database, claim)
    _refuse_unless_allowed(services.database, claim, governance, release, claim.epoch)
    staged = read_staged(services.store, Layout(dataset.pipeline), release, claim.epoch)
    # Checked again under the lock; here it only avoids writing an intent that must not be carried out.
    with services.database.transaction() as connection:
        kill_switch.refuse_if_killed(connection, dataset.dataset)
    transactions.advance(services.database, claim, Step.PUBLISH, release.as_detail())
    _complete(services, dataset, claim, release, claim.epoch, staged)
    return release


def finish(
    services: Services, dataset: Dataset, claim: Claim, intent: Entry, governance: Callable[[], Governance]
) -> bool:
    """Completes a predecessor's intended publication. Returns False, and abandons the intent, when readers have not
    seen it and this process has not staged it, it is no longer allowed, or the Item was changed."""
    release = Release.from_values(intent.detail)
    try:
        staged = None
        if not is_visible(services, dataset, intent):
            _refuse_unless_allowed(services.database, claim, governance(), release, intent.txn)
            staged = read_staged(services.store, Layout(dataset.pipeline), release, intent.txn)
        _complete(services, dataset, claim, release, intent.txn, staged)
    except (
        IntegrityBroken, ObjectMissing, PointerMoved, GateRefused, PolicyRefused, ReviewRefused, SignatureRefused
    ) as error:  # fmt: skip
        if is_visible(services, dataset, intent):
            raise
        transactions.abandon_intent(services.database, claim, intent, str(error))
        return False
    return True


def is_visible(services: Services, dataset: Dataset, intent: Entry) -> bool:
    """Whether readers see the intended release. An Item that a restoration leaves as it is proves nothing."""
    item = services.store.digest(Layout(dataset.pipeline).item(intent.key))
    release = Release.from_values(intent.detail)
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
    if intent is None or intent.step is not Step.PUBLISH or not is_visible(services, dataset, intent):
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


def _refuse_unless_allowed(
    database: Database, claim: Claim, governance: Governance, release: Release, txn: int
) -> None:
    """Refuses unless it was computed under this configuration, every gate is green and any required review is given."""
    computed = _entry_of(database, claim.key, txn, Step.COMPUTE)
    if computed["config"] != governance.config_digest(claim.key):
        raise GateRefused(f"{claim.key}: the policy, an exemption or the declaration has changed since it was computed")
    require_green(database, claim.key, txn, TABLE_GATES, release.content_hash)
    require_green(database, claim.key, txn, RELEASE_GATES, release.digest, CareRefused)
    if not is_approved(governance.oversight, claim.key, release.digest):
        raise ReviewRefused(f"{claim.key}: nobody with authority has approved this release")


def _complete(
    services: Services, dataset: Dataset, claim: Claim, release: Release, txn: int, staged: StagedFiles | None
) -> None:
    with open_publication(services.database, claim, dataset.dataset, visible=staged is None) as locked:
        write_current_if_missing(services, dataset, release, locked)
        layout = Layout(dataset.pipeline)
        promote(services.store, layout, release, staged, locked.refuse_if_killed)
        withdrawn = locked.withdrawn_contents(release.content_hash)
        for content_hash in withdrawn:
            services.store.discard(layout.content(content_hash))
        lost = write_history(services, dataset, release, txn, locked, withdrawn)
        locked.commit(
            Revision.from_values(asdict(release), txn=txn, run_id=claim.owner),
            release.records.get(MANIFEST),
            release.records.get(ATTESTATION),
            txn=txn,
            note=_missing_history_note(release.revision, lost),
        )
    try:
        remove_replaced(services, claim.key, txn)
    except KfmError as error:  # it is published, and the nightly purge removes the rest
        log.warning("%s: could not remove its quarantined files: %s", claim.key, error)


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
    uri, version, late = source["uri"], source["version"], source.get("late", False)
    etag, sha256 = computed["etags"][uri], computed["sha256"][uri]
    if not rules.secret:
        size = computed["sizes"][uri]
        return InputFacts(uri, version, etag, size, {"sha256": sha256}, source["event"], late)
    digest = {"hmacSha256": keyed_digest(rules.secret, sha256)}
    return InputFacts(uri, version, None, None, digest, keyed_digest(rules.secret, source["event"]), late)


def _next_revision(database: Database, key: str, inputs_hash: str, content_hash: str) -> int:
    """Returns the next number, or the current one when it is being restored from the same inputs."""
    current = current_revision(database, key)
    if current is None:
        return 1
    if current.inputs_hash != inputs_hash:
        return current.revision + 1
    if current.content_hash != content_hash:
        raise IntegrityBroken(
            f"{key}: the inputs of revision {current.revision} now give different bytes, so it cannot be restored; "
            "use the library versions it was made with, or a new transform_version"
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

"""The last stage of a run: publishes what is staged, green and approved, many keys in one transaction."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.errors import KfmError
from kfm_pipelines.stages import reproduce
from kfm_pipelines.stages.mask import audit_entry
from kfm_pipelines.stages.previews import DETAILED_KEYS, BatchPreviews
from kfm_pipelines.stages.publish import release
from kfm_pipelines.stages.publish.promote import IntendedRelease
from kfm_pipelines.stages.run_keys import RunKeys
from kfm_pipelines.stages.telemetry.outcomes import AWAITING, SKIPPED
from kfm_pipelines.state import kill_switch, transactions
from kfm_pipelines.state.audit import Action
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.transactions import KeyFacts, StageResult
from kfm_pipelines.state.wal import Step, Transition

# Limits what one transaction publishes: others who need one of its keys wait for its swaps.
KEYS_PER_PUBLICATION = 50
BYTES_PER_PUBLICATION = 64 * 1024 * 1024


class PublishStage:
    def __init__(self, run: RunKeys, previews: BatchPreviews) -> None:
        self._run = run
        self._previews = previews
        self.awaiting_review: set[str] = set()

    def publish(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Publishes what is staged and green; releases that need a review wait for it."""
        published: dict[str, Mapping[str, Any]] = {}
        all_keys = list(keys)
        with self._run.stage_scope():
            claims = self._run.load_held_claims(self._run.allowed_keys(all_keys))
            facts = self._run.load_facts(claims)
            intended: list[IntendedRelease] = []
            refused: dict[str, Exception] = {}
            with self._run.telemetry.shared(claims, "publish"):
                for claim in claims:
                    try:
                        intended += self._authorise(claim, facts[claim.key])
                    except Exception as error:  # noqa: BLE001 - any error fails this key only
                        refused[claim.key] = error
            self._run.fail("publish", claims, refused)
            for chunk in _chunks(intended):
                begun = datetime.now(UTC)
                for one, failure in self._publish_chunk(chunk):
                    with self._run.failures.guard(one.claim, "publish", begun=begun):
                        if failure is not None:
                            raise failure
                        published[one.key] = one.release.as_detail()
                        self._run.outcomes.emit_applied(one.claim, published[one.key])
            for one in [one for one in intended if one.key in published][-DETAILED_KEYS:]:
                self._previews.hold_table(one.claim, one.release)
        self._run.store.forget_work(self._run.layout, all_keys)  # also of those that another worker has taken
        return published

    def _authorise(self, claim: Claim, facts: KeyFacts) -> list[IntendedRelease]:
        """Returns the release to publish, if there is one: it may be reproduced, or have to wait for its review."""
        if self._run.is_reproduction and self._skip_if_reproduced(claim, facts):
            return []
        if self._await_review_if_required(claim, facts):
            self.awaiting_review.add(claim.key)
            return []
        config = self._run.configs.for_key(claim.key)
        return [release.intend(self._run.services, config.dataset, claim, config.governance, facts)]

    def _skip_if_reproduced(self, claim: Claim, facts: KeyFacts) -> bool:
        """Ends the transaction without publishing when readers still find the reproduced release."""
        staged = release.staged_release(facts)
        if not reproduce.is_still_published(self._run.services, self._run.dataset, staged):
            return False
        self._run.notes[claim.key] = reproduce.REPRODUCED
        self._run.failures.clear(claim)
        transactions.skip(self._run.database, {claim: {"revision": staged.revision, "reason": reproduce.REPRODUCED}})
        self._run.outcomes.emit_unpublished(claim, SKIPPED)
        return True

    def _await_review_if_required(self, claim: Claim, facts: KeyFacts) -> bool:
        """Frees the key until its release is reviewed, if it needs a review and has none."""
        staged = release.staged_release(facts)
        governance = self._run.configs.for_key(claim.key).governance
        if governance.oversight.is_approved(claim.key, staged.digest):
            return False
        for path in (self._run.layout.computed_table, self._run.layout.staged_data):  # what a reviewer sees
            self._run.store.keep(path(claim.key, claim.epoch))
        entry = audit_entry(Action.REVIEW_ASKED, self._run.dataset, claim, governance.policy, staged.digest, {})
        transactions.await_review(self._run.database, claim, staged.digest, entry)
        self._run.notes[claim.key] = "awaiting review"
        self._run.outcomes.emit_unpublished(claim, AWAITING)
        return True

    def _publish_chunk(self, releases: Sequence[IntendedRelease]) -> list[tuple[IntendedRelease, Exception | None]]:
        """Logs the intents and carries them out. Returns the releases with a logged intent, and what prevented each."""
        try:
            # Checked again under the lock; here it only avoids writing intents that must not be carried out.
            with self._run.database.transaction() as connection:
                kill_switch.refuse_if_killed(connection, self._run.dataset.dataset)
        except KfmError as error:
            return [(one, error) for one in releases]
        intents = [StageResult(Transition(one.claim, Step.PUBLISH, one.release.as_detail())) for one in releases]
        logged = self._run.advance("publish", intents)
        ready = [one for one in releases if one.key in logged]
        with self._run.telemetry.shared([one.claim for one in ready], "publish"):
            failures = release.complete(self._run.services, self._run.dataset, ready) if ready else {}
        return [(one, failures.get(one.key)) for one in ready]


def _chunks(releases: Iterable[IntendedRelease]) -> Iterator[list[IntendedRelease]]:
    """Yields releases to publish in one transaction: many small ones, so that their requests go out together, and few
    large ones, so that none holds up the others."""
    chunk: list[IntendedRelease] = []
    size = 0
    for one in releases:
        if chunk and (len(chunk) == KEYS_PER_PUBLICATION or size + one.release.bytes > BYTES_PER_PUBLICATION):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += one.release.bytes
    if chunk:
        yield chunk

"""Handles the failure of one key of a run without affecting the others.

The class of the error decides: hand back, refuse, retry or fail. A failed key of a replay does not become due, because
the replay retries it, unless its publication has begun: that must be completed in any case.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from kfm_pipelines.errors import (
    AttemptsExhausted,
    DatasetKilled,
    KfmError,
    OwnershipLost,
    ReplayRefused,
    Retryable,
    Terminal,
)
from kfm_pipelines.services import Services
from kfm_pipelines.stages.telemetry.outcomes import OutcomeTelemetry
from kfm_pipelines.stages.telemetry.spans import StageTelemetry
from kfm_pipelines.state import transactions
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.lines import format_traceback

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailureHandler:
    services: Services
    layout: Layout
    telemetry: StageTelemetry
    outcomes: OutcomeTelemetry
    notes: dict[str, str] = field(default_factory=dict)  # why a key dropped out

    @contextmanager
    def guard(self, claim: Claim, stage: str, span: str | None = None, begun: datetime | None = None) -> Iterator[None]:
        """Runs the work on one key in its span. Loss of ownership may only become known while a failure is recorded."""
        with self.telemetry.stage_span(claim, stage, span, begun):
            try:
                with self._handle_failures(claim, stage):
                    yield
            except OwnershipLost as error:
                self.telemetry.mark_work_failed(error)
                self.notes[claim.key] = str(error)
                self.clear(claim)

    def hand_back(
        self, claim: Claim, *, delay: float = 0, reason: str, count_attempt: bool = False, refused: bool = False
    ) -> None:
        self.clear(claim)
        transactions.hand_back(
            self.services.database, claim, delay=delay, reason=reason, count_attempt=count_attempt, refused=refused
        )

    def clear(self, claim: Claim) -> None:
        """Removes what this claim wrote. Call before freeing the key."""
        for folder in self.layout.work_folders(claim.key):
            self.services.store.remove(f"{folder}/{claim.epoch}")

    @contextmanager
    def _handle_failures(self, claim: Claim, stage: str) -> Iterator[None]:
        try:
            yield
        except OwnershipLost:
            raise
        except (DatasetKilled, ReplayRefused) as error:  # no dead letter: what is published stays valid
            self.telemetry.mark_work_failed(error)
            self.notes[claim.key] = str(error)
            self.hand_back(claim, reason=str(error), refused=isinstance(error, ReplayRefused))
        except Terminal as error:
            self._fail(claim, stage, error)
        except Retryable as error:
            self._retry(claim, stage, error)
        except Exception as error:  # noqa: BLE001 - any error fails this key only
            # The traceback without the message, which may quote the data.
            kind, trace = type(error).__name__, format_traceback(error)
            log.error("unexpected failure of %s in %s: %s\n%s", claim.key, stage, kind, trace)
            unexpected = Retryable(f"{claim.key}: {kind} in {stage}")
            self._retry(claim, stage, unexpected.with_traceback(error.__traceback__))

    def _retry(self, claim: Claim, stage: str, error: Retryable) -> None:
        if self.services.retries.is_exhausted(claim.attempts):
            exhausted = AttemptsExhausted(f"{claim.attempts} attempts, the last one: {error}")
            self._fail(claim, stage, exhausted.with_traceback(error.__traceback__))
            return
        delay = self.services.retries.delay(claim.attempts, self.services.random)
        by_replay = claim.replay and not transactions.has_publish_intent(self.services.database, claim.key)
        when = "its replay retries it" if by_replay else f"retried in {delay:.0f} s"
        self.telemetry.mark_work_failed(error)
        self.notes[claim.key] = f"{when}: {error}"
        self.hand_back(claim, delay=delay, reason=str(error), count_attempt=True)
        self.outcomes.emit_retry(error)

    def _fail(self, claim: Claim, stage: str, error: KfmError) -> None:
        self.telemetry.mark_work_failed(error)
        self.notes[claim.key] = str(error)
        self.clear(claim)
        retry_in = self.services.retries.cap_seconds
        is_final = transactions.fail(
            self.services.database, claim, stage, error, retry_in=retry_in, trace=format_traceback(error)
        )
        if is_final:
            self.outcomes.emit_failed(claim, stage, error)
        else:
            self.outcomes.emit_retry(error)

"""The replay gate: when a key of a replay is set aside, and when the replay as a whole must stop.

Pure. It is asked after every batch; what it says is in the replay's log.
"""

from collections.abc import Iterable
from dataclasses import dataclass

# When nothing at all has worked after so many keys, the rest will not either.
MIN_KEYS_BEFORE_STOP = 5


@dataclass(frozen=True, slots=True)
class KeyAttempts:
    """How a key has fared in a replay so far: how often it failed, and whether it has an outcome. Neither, when it was
    only handed back for another's sake."""

    key: str
    failures: int
    has_outcome: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """Which keys are set aside from now on, and why the replay must stop, if it must."""

    quarantined: tuple[KeyAttempts, ...] = ()
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayGate:
    max_attempts: int = 3
    quarantine_percent: float = 10.0

    def judge(self, attempts: Iterable[KeyAttempts], already_quarantined: int, *, more_to_come: bool) -> ReplayVerdict:
        """`tried` are the keys that were in a batch, without those that were set aside before. With nothing more to
        come there is nothing to stop."""
        looked_at = list(attempts)
        aside = tuple(one for one in looked_at if not one.has_outcome and one.failures >= self.max_attempts)
        if not more_to_come:
            return ReplayVerdict(aside)
        total = len(looked_at) + already_quarantined
        if total >= MIN_KEYS_BEFORE_STOP and all(one.failures and not one.has_outcome for one in looked_at):
            why = next((one.reason for one in reversed(looked_at) if one.reason), "no reason was given")
            return ReplayVerdict(aside, f"none of the first {total} keys succeeded; the last one: {why}")
        quarantined = len(aside) + already_quarantined
        if total and quarantined * 100 > self.quarantine_percent * total:
            why = next((one.reason for one in reversed(aside) if one.reason), "see the keys in quarantine")
            return ReplayVerdict(
                aside,
                f"{quarantined} of {total} keys are in quarantine, more than {self.quarantine_percent:g} %; "
                f"the last one: {why}",
            )
        return ReplayVerdict(aside)

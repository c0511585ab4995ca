"""The replay gate: decides after every batch which keys to set aside and whether the replay must stop. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

MIN_KEYS_BEFORE_STOP = 5  # if none of this many keys succeeded, the rest will not either


@dataclass(frozen=True, slots=True)
class KeyAttempts:
    """How often a key failed and whether it has an outcome. A key handed back because of another has neither."""

    key: str
    failures: int
    has_outcome: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    quarantined: tuple[KeyAttempts, ...] = ()
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayGate:
    max_attempts: int = 3
    quarantine_percent: float = 10.0

    def judge(self, attempts: Iterable[KeyAttempts], already_quarantined: int, *, more_to_come: bool) -> ReplayVerdict:
        """Takes keys of finished batches, without those set aside earlier. Never stops a replay with no more keys."""
        judged = list(attempts)
        aside = tuple(one for one in judged if not one.has_outcome and one.failures >= self.max_attempts)
        if not more_to_come:
            return ReplayVerdict(aside)
        total = len(judged) + already_quarantined
        if total >= MIN_KEYS_BEFORE_STOP and all(one.failures and not one.has_outcome for one in judged):
            why = next((one.reason for one in reversed(judged) if one.reason), "no reason was given")
            return ReplayVerdict(aside, f"none of the first {total} keys succeeded; the last one: {why}")
        quarantined = len(aside) + already_quarantined
        if total and quarantined * 100 > self.quarantine_percent * total:
            why = next((one.reason for one in reversed(aside) if one.reason), "see the keys in quarantine")
            share = f"{quarantined} of {total} keys are in quarantine, more than {self.quarantine_percent:g} %"
            return ReplayVerdict(aside, f"{share}; the last one: {why}")
        return ReplayVerdict(aside)

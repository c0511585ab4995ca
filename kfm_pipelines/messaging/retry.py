"""How long to wait before trying again: full jitter under a cap."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    base_seconds: float = 2.0
    cap_seconds: float = 300.0
    max_attempts: int = 7

    def delay(self, attempt: int, random: Random) -> float:
        """A wait for the given attempt, counted from 1."""
        ceiling = min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt, 64))
        return random.uniform(0, ceiling)

    def exhausted(self, attempt: int) -> bool:
        return attempt >= self.max_attempts

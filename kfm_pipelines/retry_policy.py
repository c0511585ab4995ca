"""When a failed attempt is repeated: exponential backoff with full jitter. `KFM_MAX_ATTEMPTS` and
`KFM_RETRY_BASE_SECONDS` set the numbers, see settings.py."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_attempts: int
    base_seconds: float
    cap_seconds: float = 300.0

    def delay(self, attempt: int, random: Random) -> float:
        """Returns a random wait for the given attempt, counted from 1."""
        ceiling = min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt, 64))
        return random.uniform(0, ceiling)

    def is_exhausted(self, attempt: int) -> bool:
        return attempt >= self.max_attempts

"""What stages hand on: a key's table and the gates' verdicts on it."""

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property

from kfm_pipelines.gates import Verdict
from kfm_pipelines.state.keys import Claim


class Handoff:
    """A key's table on its way from one stage to the next, as Parquet bytes that are read when needed."""

    def __init__(self, claim: Claim, read: Callable[[], bytes]) -> None:
        self.claim = claim
        self._read = read

    @classmethod
    def from_bytes(cls, claim: Claim, data: bytes) -> "Handoff":
        return cls(claim, lambda: data)

    @cached_property
    def data(self) -> bytes:
        return self._read()

    @cached_property
    def content_hash(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


# One at a time, so that a large batch needs little memory. A failure to store one is thrown into the generator.
HandoffStream = Generator[Handoff, None, None]


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    key: str
    verdict: Verdict

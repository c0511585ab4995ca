"""Looking for thousands of needles in megabytes at once.

The first four bytes of every needle go into one table; numpy holds all of the data against it, and only what is left is
compared in full. So the time depends on the data and hardly on the number of needles.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kfm_pipelines_tests.care.leak_forms import Needle

CHUNK = 1 << 22
HASH = np.uint32(2654435761)
HASH_BITS = 20


@dataclass(frozen=True, slots=True)
class Found:
    number: int  # of the canary
    form: str
    offset: int


class Search:
    """`needles` come with the number of the canary they belong to."""

    def __init__(self, needles: Iterable[tuple[int, Needle]]) -> None:
        self._by_head: dict[bytes, dict[tuple[int, Needle], None]] = defaultdict(dict)
        for number, needle in needles:
            if len(needle.data) < 4:
                raise ValueError(f"a needle of the form {needle.form} is shorter than four bytes")
            self._by_head[needle.data[:4]][number, needle] = None
        heads = np.frombuffer(b"".join(self._by_head), ">u4").astype(np.uint32)
        self._heads = np.unique(heads)
        self._table = np.zeros(1 << HASH_BITS, bool)
        self._table[_hashed(self._heads)] = True

    def __call__(self, data: bytes) -> Iterator[Found]:
        for start in self._candidates(data):
            for number, needle in self._by_head[data[start : start + 4]]:
                end = start + len(needle.data)
                if data.startswith(needle.data, start) and (needle.check is None or needle.check(data, start, end)):
                    yield Found(number, needle.form, start)

    def _candidates(self, data: bytes) -> Iterator[int]:
        for chunk in range(0, len(data) - 3, CHUNK):
            letters = np.frombuffer(data, np.uint8, min(CHUNK + 3, len(data) - chunk), chunk).astype(np.uint32)
            words = letters[:-3] << 24 | letters[1:-2] << 16 | letters[2:-1] << 8 | letters[3:]
            likely = np.flatnonzero(self._table[_hashed(words)])
            places = np.searchsorted(self._heads, words[likely])
            sure = self._heads[np.minimum(places, len(self._heads) - 1)] == words[likely]
            yield from (likely[sure] + chunk).tolist()


def _hashed(words: Any) -> Any:
    return words * HASH >> np.uint32(32 - HASH_BITS)

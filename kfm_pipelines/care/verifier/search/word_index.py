"""How texts begin and end, as numbers: with these, millions of texts are held against a few words in no time.

Belongs here: what sorts out texts that cannot be meant. Does not: whether one of the others is; what is not plain ASCII
where it is looked at is never sorted out.
"""

import string
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Bytes = npt.NDArray[np.uint8]
    Codes = npt.NDArray[np.int32]
    Flags = npt.NDArray[np.bool_]

_LETTERS = 4  # so many of a word are looked at
_SIGNS = {sign: place for place, sign in enumerate(string.digits + string.ascii_lowercase, start=1)}
_OTHER = len(_SIGNS) + 1  # not ASCII
_BASE = _OTHER + 1
_ANY = 0  # the code of what cannot be sorted out
_SCATTER = 0x9E3779B97F4A7C15
_KEPT_BITS = 20


def firsts_of(texts: "pa.Array") -> "Codes":
    """Of each text the first letters of its first word."""
    import numpy as np

    data, starts, _ = _buffers(texts)
    return _codes(data, [np.minimum(starts + place, len(data) - 1) for place in range(_LETTERS)])


def lasts_of(texts: "pa.Array") -> "Codes":
    """Of each text the last letters of its last word, the very last first."""
    import numpy as np

    data, _, stops = _buffers(texts)
    return _codes(data, [np.maximum(stops - 1 - place, 0) for place in range(_LETTERS)])


def those_of(words: Iterable[str]) -> "Flags":
    """Which codes texts have that begin with one of these words, in whatever case; turned round, that end with it."""
    import numpy as np

    known = np.zeros(_BASE**_LETTERS, np.bool_)
    known[[_ANY, *map(_code, words)]] = True
    return known


def beginnings(blobs: Iterable[bytes], length: int) -> "Callable[[pa.Array], Flags]":
    """Tells of texts whether their first bytes, in small letters, may be anywhere in these bytes."""
    import numpy as np

    there = np.zeros(2**_KEPT_BITS, np.bool_)
    for blob in blobs:
        there[_scattered(_windows(np.frombuffer(blob, np.uint8), length))] = True
    small = np.arange(256, dtype=np.uint8)
    small[ord("A") : ord("Z") + 1] += ord("a") - ord("A")

    def may_be(texts: "pa.Array") -> "Flags":
        data, starts, stops = _buffers(texts)
        begun = np.zeros(len(texts), np.uint64)
        other = np.zeros(len(texts), np.bool_)
        for place in range(length):
            sign = small[data[np.minimum(starts + place, len(data) - 1)]]
            other |= sign > 127  # of the text after it, if this one is too short
            begun = begun << np.uint64(8) | sign
        return other | ((stops - starts >= length) & there[_scattered(begun)])

    return may_be


def _windows(data: "Bytes", length: int) -> "npt.NDArray[np.uint64]":
    """All bytes in a row of this length, as numbers."""
    import numpy as np

    number = max(len(data) - length + 1, 0)
    found = np.zeros(number, np.uint64)
    for place in range(length):
        found = found << np.uint64(8) | data[place : place + number]
    return found


def _scattered(numbers: "npt.NDArray[np.uint64]") -> "npt.NDArray[np.int64]":
    import numpy as np

    return ((numbers * np.uint64(_SCATTER)) >> np.uint64(64 - _KEPT_BITS)).astype(np.int64)


def _codes(data: "Bytes", places: "list[npt.NDArray[np.int32]]") -> "Codes":
    """Up to where the word is over. A text that begins or ends with another sign has to be looked at."""
    import numpy as np

    signs = np.zeros(256, np.int32)
    signs[128:] = _OTHER
    for sign, number in _SIGNS.items():
        signs[ord(sign)] = signs[ord(sign.upper())] = number
    codes = np.zeros(len(places[0]), np.int32)
    goes_on, other = np.ones(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
    for place in places:
        found = signs[data[place]]
        goes_on &= found > 0
        other |= goes_on & (found == _OTHER)
        codes = codes * _BASE + np.where(goes_on, found, 0)
    codes[other] = _ANY
    return codes


def _code(word: str) -> int:
    code = 0
    for sign in word[:_LETTERS].lower().ljust(_LETTERS):
        if not sign.isascii():
            return _ANY
        code = code * _BASE + _SIGNS.get(sign, 0)
    return code


def _buffers(texts: "pa.Array") -> "tuple[Bytes, npt.NDArray[np.int32], npt.NDArray[np.int32]]":
    """Arrow's own: all signs in a row, and where each text starts and stops."""
    import numpy as np

    _, offsets, data = texts.buffers()
    if not len(texts) or data is None or not data.size:
        nothing = np.zeros(len(texts), np.int32)
        return np.zeros(1, np.uint8), nothing, nothing
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8), ends[:-1], ends[1:]

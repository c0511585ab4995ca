"""Encodes how texts begin and end as numbers, to rule out quickly most of millions of texts that cannot match a word.

Texts that are not ASCII at these positions are never ruled out.
"""

import string
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfm_pipelines.care.verifier.types import Bytes, Codes, Flags

_LETTERS_PER_CODE = 4
_CHARACTER_CODES = {sign: place for place, sign in enumerate(string.digits + string.ascii_lowercase, start=1)}
_NON_ASCII = len(_CHARACTER_CODES) + 1
_BASE = _NON_ASCII + 1
_ANY_CODE = 0  # of texts that cannot be ruled out
_HASH_MULTIPLIER = 0x9E3779B97F4A7C15
_HASH_BITS = 20


def first_letter_codes(texts: pa.Array) -> Codes:
    """Encodes the first letters of each text's first word."""
    data, starts, _ = _text_buffers(texts)
    return _letter_codes(data, [np.minimum(starts + place, len(data) - 1) for place in range(_LETTERS_PER_CODE)])


def last_letter_codes(texts: pa.Array) -> Codes:
    """Encodes the last letters of each text's last word, the last one first."""
    data, _, stops = _text_buffers(texts)
    return _letter_codes(data, [np.maximum(stops - 1 - place, 0) for place in range(_LETTERS_PER_CODE)])


def codes_of_words(words: Iterable[str]) -> Flags:
    """Flags the codes of texts that begin with one of these words in any case; for reversed words, that end with it."""
    known = np.zeros(_BASE**_LETTERS_PER_CODE, np.bool_)
    known[[_ANY_CODE, *map(_word_code, words)]] = True
    return known


def prefix_filter(blobs: Iterable[bytes], length: int) -> Callable[[pa.Array], Flags]:
    """Returns a function that flags texts whose first bytes, in lower case, may occur in these bytes."""
    there = np.zeros(2**_HASH_BITS, np.bool_)
    for blob in blobs:
        there[_hash_numbers(_windows(np.frombuffer(blob, np.uint8), length))] = True
    small = np.arange(256, dtype=np.uint8)
    small[ord("A") : ord("Z") + 1] += ord("a") - ord("A")

    def may_be(texts: pa.Array) -> Flags:
        data, starts, stops = _text_buffers(texts)
        begun = np.zeros(len(texts), np.uint64)
        other = np.zeros(len(texts), np.bool_)
        for place in range(length):
            sign = small[data[np.minimum(starts + place, len(data) - 1)]]
            other |= sign > 127  # may belong to the next text, if this one is too short
            begun = begun << np.uint64(8) | sign
        return other | ((stops - starts >= length) & there[_hash_numbers(begun)])

    return may_be


def _windows(data: Bytes, length: int) -> npt.NDArray[np.uint64]:
    """Returns all runs of bytes of this length as numbers."""
    number = max(len(data) - length + 1, 0)
    found = np.zeros(number, np.uint64)
    for place in range(length):
        found = found << np.uint64(8) | data[place : place + number]
    return found


def _hash_numbers(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return ((numbers * np.uint64(_HASH_MULTIPLIER)) >> np.uint64(64 - _HASH_BITS)).astype(np.int64)


def _letter_codes(data: Bytes, places: list[npt.NDArray[np.int32]]) -> Codes:
    """Encodes letters up to the end of the word. A text with a non-ASCII character there gets _ANY_CODE."""
    signs = np.zeros(256, np.int32)
    signs[128:] = _NON_ASCII
    for sign, number in _CHARACTER_CODES.items():
        signs[ord(sign)] = signs[ord(sign.upper())] = number
    codes = np.zeros(len(places[0]), np.int32)
    goes_on, other = np.ones(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
    for place in places:
        found = signs[data[place]]
        goes_on &= found > 0
        other |= goes_on & (found == _NON_ASCII)
        codes = codes * _BASE + np.where(goes_on, found, 0)
    codes[other] = _ANY_CODE
    return codes


def _word_code(word: str) -> int:
    code = 0
    for sign in word[:_LETTERS_PER_CODE].lower().ljust(_LETTERS_PER_CODE):
        if not sign.isascii():
            return _ANY_CODE
        code = code * _BASE + _CHARACTER_CODES.get(sign, 0)
    return code


def _text_buffers(texts: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns Arrow's bytes of all texts, and where each text starts and stops."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None or not data.size:
        nothing = np.zeros(len(texts), np.int32)
        return np.zeros(1, np.uint8), nothing, nothing
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8), ends[:-1], ends[1:]

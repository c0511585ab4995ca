"""Searches texts for any of millions of phrases, which stay in Arrow arrays.

Punctuation and letter case do not hide a phrase. A phrase of one plain word matches in its own case only: `private`
in a sentence does not mean an owner called Private.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from copy import copy

import pyarrow as pa
import pyarrow.compute as pc

from kfm_pipelines.care.verifier.search.word_index import (
    codes_of_words,
    first_letter_codes,
    last_letter_codes,
    prefix_filter,
)
from kfm_pipelines.parquet.parquet import flatten

_WORD = re.compile(r"[^\W_]+")
_MIN_PHRASE_LENGTH = 4
_BATCH_SIZE = 100_000  # texts or phrases; bounds the memory
_CHUNK_SIZE = 32_768  # phrases whose intermediate arrays fit the processor's cache


class Phrases:
    """Phrases to search for. A phrase is normalised only when it may match."""

    def __init__(self, values: Iterable[str] | pa.ChunkedArray) -> None:
        column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values, pa.string())])
        starts = range(0, len(column), _CHUNK_SIZE)
        self._chunks = [flatten(column.slice(start, _CHUNK_SIZE)) for start in starts]
        self._last_letter_codes = [last_letter_codes(chunk) for chunk in self._chunks]
        self._public_phrases: frozenset[str] = frozenset()

    def without(self, texts: Iterable[str]) -> "Phrases":
        """Returns the phrases that occur in none of these texts."""
        rest = copy(self)
        rest._public_phrases = self._public_phrases.union(*self.find_in_each(list(texts)))
        return rest

    def find_in_each(self, texts: Sequence[str]) -> list[set[str]]:
        """Returns the normalised phrases found in each text."""
        return [
            found
            for start in range(0, len(texts), _BATCH_SIZE)
            for found in self._find_in_batch(texts[start:][:_BATCH_SIZE])
        ]

    def count_in_bytes(self, blobs: Sequence[bytes], shortest: int) -> int:
        """Counts phrases of at least `shortest` bytes that occur verbatim in lower-case bytes."""
        begun, found = prefix_filter(blobs, shortest), 0
        for table in _word_tables([chunk.filter(pa.array(begun(chunk))) for chunk in self._chunks]):
            secret = pc.invert(_is_in(table.column("words"), self._public_phrases))
            texts = pc.unique(pc.utf8_lower(table.column("written").filter(secret)).cast(pa.binary())).to_pylist()
            found += sum(len(text) >= shortest and text in blob for text in texts for blob in blobs)
        return found

    def _find_in_batch(self, texts: Sequence[str]) -> Iterator[set[str]]:
        there = _all_words(texts)
        phrases = self._phrases_with_words(there)
        begun = set(_distinct_in(pc.unique(pc.replace_substring_regex(phrases, " .*", "")), there))
        lengths = sorted(number + 1 for number in pc.unique(pc.count_substring(phrases, " ")).to_pylist())
        candidates = {phrase for text in texts for phrase in _candidates(text, begun, lengths)}
        known = set(_distinct_in(phrases, candidates)) - self._public_phrases
        for text in texts:
            yield known.intersection(_candidates(text, begun, lengths)) if known else set()

    def _phrases_with_words(self, words: set[str]) -> pa.ChunkedArray:
        """Returns phrases that begin and end with one of these words, and possibly a few more."""
        ends = codes_of_words(word[::-1] for word in words)
        few = [
            chunk.filter(pa.array(ends[code]))
            for chunk, code in zip(self._chunks, self._last_letter_codes, strict=True)
        ]
        del ends
        begins = codes_of_words(words)
        tables = _word_tables([chunk.filter(pa.array(begins[first_letter_codes(chunk)])) for chunk in few])
        return pa.chunked_array([chunk for table in tables for chunk in table.column("words").chunks], pa.string())


def _candidates(text: str, first_words: set[str], lengths: Sequence[int]) -> Iterator[str]:
    written = _WORD.findall(text)
    words = [word.casefold() for word in written]
    for start, word in enumerate(words):
        if written[start] in first_words and written[start].isalpha():
            yield written[start]
        if word in first_words:
            for length in lengths:
                if start + length <= len(words) and (length > 1 or not word.isalpha()):
                    yield " ".join(words[start : start + length])


def is_number(phrase: str) -> bool:
    return phrase.isdigit()


def _word_tables(fragments: Sequence[pa.Array]) -> Iterator[pa.Table]:
    column = pa.chunked_array(fragments, pa.string())
    for start in range(0, len(column), _BATCH_SIZE):
        yield _normalise_words(flatten(column.slice(start, _BATCH_SIZE)))


def _normalise_words(values: pa.Array) -> pa.Table:
    """Returns phrases as `written` and the `words` to search for. ASCII is folded in Arrow, all else in Python."""
    values = values.filter(pc.greater_equal(pc.utf8_length(pc.utf8_trim_whitespace(values)), _MIN_PHRASE_LENGTH))
    plain = pc.string_is_ascii(values)
    easy, other = values.filter(plain), values.filter(pc.invert(plain))
    words = pc.utf8_trim(pc.replace_substring_regex(easy, "[^0-9A-Za-z]+", " "), " ")
    folded = pc.if_else(pc.match_substring_regex(words, "^[A-Za-z]+$"), words, pc.ascii_lower(words))
    rest = pa.array([_normalise_phrase(value) for value in other.to_pylist()], pa.string())
    table = pa.table(
        {
            "written": pa.chunked_array([easy, other], pa.string()),
            "words": pa.chunked_array([folded, rest], pa.string()),
        }
    )
    return table.filter(pc.not_equal(table.column("words"), ""))


def _normalise_phrase(value: str) -> str:
    words = _WORD.findall(value.casefold())
    return " ".join(_WORD.findall(value) if len(words) == 1 and words[0].isalpha() else words)


def _all_words(texts: Sequence[str]) -> set[str]:
    written = {word for text in texts for word in _WORD.findall(text)}
    return written | {word.casefold() for word in written}


def _is_in(values: pa.Array | pa.ChunkedArray, phrases: AbstractSet[str]) -> pa.ChunkedArray:
    return pc.is_in(values, value_set=pa.array(sorted(phrases), pa.string()))


def _distinct_in(values: pa.Array | pa.ChunkedArray, phrases: AbstractSet[str]) -> list[str]:
    found: list[str] = pc.unique(values.filter(_is_in(values, phrases))).to_pylist() if phrases else []
    return found

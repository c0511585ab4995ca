"""Finding any of very many phrases in texts: millions of phrases stay in Arrow, only words of the texts leave it.

Punctuation and the case of letters do not hide a phrase. A phrase of one plain word is only found as it is written:
`private` in a sentence is no sign of an owner called Private.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_WORD = re.compile(r"[^\W_]+")
_SHORTEST = 4
_AT_ONCE = 100_000  # texts; each time all phrases are gone through


class Phrases:
    """`written` are the phrases as they were, `words` beside them what of each is looked for."""

    def __init__(self, values: "Iterable[str] | pa.ChunkedArray") -> None:
        import pyarrow as pa

        column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values, pa.string())])
        starts = range(0, max(len(column), 1), _AT_ONCE)  # in pieces, for the memory that each step takes
        self._table = pa.concat_tables([_words(column.slice(start, _AT_ONCE)) for start in starts])

    @property
    def written(self) -> "pa.ChunkedArray":
        return self._table.column("written")

    def without(self, texts: Iterable[str]) -> "Phrases":
        """The phrases that none of these texts has."""
        import pyarrow.compute as pc

        found = {phrase for held in self.found_in_each(list(texts)) for phrase in held}
        rest = Phrases([])
        rest._table = self._table
        if found:
            rest._table = self._table.filter(pc.invert(_is_in(self._table.column("words"), found)))
        return rest

    def found_in(self, text: str) -> set[str]:
        return self.found_in_each([text])[0]

    def found_in_each(self, texts: Sequence[str]) -> list[set[str]]:
        """For each text the phrases it has, in the words that are looked for."""
        return [found for start in range(0, len(texts), _AT_ONCE) for found in self._found(texts[start:][:_AT_ONCE])]

    def _found(self, texts: Sequence[str]) -> Iterator[set[str]]:
        import pyarrow.compute as pc

        begun = set(self._firsts.filter(_is_in(self._firsts, _all_words(texts))).to_pylist())
        candidates = {phrase for text in texts for phrase in self._candidates(text, begun)}
        phrases = self._table.column("words")
        known = set(pc.unique(phrases.filter(_is_in(phrases, candidates))).to_pylist()) if candidates else set()
        for text in texts:
            yield known.intersection(self._candidates(text, begun)) if known else set()

    def _candidates(self, text: str, begun: set[str]) -> Iterator[str]:
        written = _WORD.findall(text)
        words = [word.casefold() for word in written]
        for start, word in enumerate(words):
            if written[start] in begun and written[start].isalpha():
                yield written[start]
            if word in begun:
                for length in self._lengths:
                    if start + length <= len(words) and (length > 1 or not word.isalpha()):
                        yield " ".join(words[start : start + length])

    @cached_property
    def _firsts(self) -> "pa.Array":
        """The words that phrases begin with."""
        import pyarrow.compute as pc

        return pc.unique(pc.replace_substring_regex(self._table.column("words"), " .*", ""))

    @cached_property
    def _lengths(self) -> list[int]:
        """How many words phrases have."""
        import pyarrow.compute as pc

        spaces = pc.unique(pc.count_substring(self._table.column("words"), " ")).to_pylist()
        return sorted(number + 1 for number in spaces)


def is_number(phrase: str) -> bool:
    return phrase.isdigit()


def _words(values: "pa.ChunkedArray") -> "pa.Table":
    """Plain letters in one go; what folds in other ways, as Python folds it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = values.filter(pc.greater_equal(pc.utf8_length(pc.utf8_trim_whitespace(values)), _SHORTEST))
    plain = pc.string_is_ascii(values)
    easy, other = values.filter(plain), values.filter(pc.invert(plain))
    words = pc.utf8_trim(pc.replace_substring_regex(easy, "[^0-9A-Za-z]+", " "), " ")
    folded = pc.if_else(pc.match_substring_regex(words, "^[A-Za-z]+$"), words, pc.ascii_lower(words))
    rest = pa.array([_phrase(value) for value in other.to_pylist()], pa.string())
    table = pa.table(
        {
            "written": pa.chunked_array([*easy.chunks, *other.chunks], pa.string()),
            "words": pa.chunked_array([*folded.chunks, rest], pa.string()),
        }
    )
    return table.filter(pc.not_equal(table.column("words"), ""))


def _phrase(value: str) -> str:
    words = _WORD.findall(value.casefold())
    return " ".join(_WORD.findall(value) if len(words) == 1 and words[0].isalpha() else words)


def _all_words(texts: Sequence[str]) -> set[str]:
    written = {word for text in texts for word in _WORD.findall(text)}
    return written | {word.casefold() for word in written}


def _is_in(values: "pa.Array | pa.ChunkedArray", wanted: set[str]) -> "pa.ChunkedArray":
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(values, value_set=pa.array(sorted(wanted), pa.string()))

"""Finding any of very many phrases in a text, in one pass over its words.

Punctuation and the case of letters do not hide a phrase. A phrase of one plain word is only found as it is written:
`private` in a sentence is no sign of an owner called Private.
"""

import re
from collections.abc import Iterable, Iterator
from copy import copy

_WORD = re.compile(r"[^\W_]+")
_SHORTEST = 4


class Phrases:
    def __init__(self, values: Iterable[str]) -> None:
        long = (value for value in values if len(value.strip()) >= _SHORTEST)
        self._phrases = {phrase: value for value in long if (phrase := _phrase(value))}
        self._lengths: dict[str, set[int]] = {}  # of the phrases that begin with a word
        for phrase in self._phrases:
            if not _is_plain(phrase):
                self._lengths.setdefault(phrase[0], set()).add(len(phrase))

    def __iter__(self) -> Iterator[str]:
        """As they were written."""
        return iter(self._phrases.values())

    def without(self, texts: Iterable[str]) -> "Phrases":
        """The phrases that none of these texts has."""
        found = {phrase for text in texts for phrase in self.found_in(text)}
        rest = copy(self)
        rest._phrases = {phrase: value for phrase, value in self._phrases.items() if phrase not in found}
        return rest

    def found_in(self, text: str) -> set[tuple[str, ...]]:
        written = _WORD.findall(text)
        words = [word.casefold() for word in written]
        found: set[tuple[str, ...]] = {(word,) for word in written if (word,) in self._phrases}
        for start, word in enumerate(words):
            for length in self._lengths.get(word, ()):
                if (phrase := tuple(words[start : start + length])) in self._phrases:
                    found.add(phrase)
        return found


def is_number(phrase: tuple[str, ...]) -> bool:
    return len(phrase) == 1 and phrase[0].isdigit()


def _phrase(value: str) -> tuple[str, ...]:
    words = tuple(_WORD.findall(value.casefold()))
    return tuple(_WORD.findall(value)) if _is_plain(words) else words


def _is_plain(phrase: tuple[str, ...]) -> bool:
    return len(phrase) == 1 and phrase[0].isalpha()

"""The search for phrases finds what a plain search finds."""

import random
import re
import tracemalloc

import pyarrow as pa
import pytest

from kfm_pipelines.care.verifier.search.phrases import Phrases

WORD = re.compile(r"[^\W_]+")
PARTS = ["Old", "old", "MILL", "mill", "14RI301", "14ri301", "X1", "Ünder", "ünder", "straße", "STRASSE", "ﬁsh", "fish"]
BETWEEN = [" ", "-", "_", ", ", "  ", "…", " 'n' ", ""]


def some_text(chance: random.Random, most: int) -> str:
    signs = [chance.choice(PARTS) + chance.choice(BETWEEN) for _ in range(chance.randint(1, most))]
    return chance.choice(["", "", "(", " "]) + "".join(signs)


def phrase_of(value: str) -> str:
    words = WORD.findall(value.casefold())
    return " ".join(WORD.findall(value) if len(words) == 1 and words[0].isalpha() else words)


def occurs(phrase: str, text: str) -> bool:
    written = WORD.findall(text)
    folded = " ".join(word.casefold() for word in written)
    return phrase in written if phrase.isalpha() else f" {phrase} " in f" {folded} "


def test_phrases_match_whole_words() -> None:
    phrases = Phrases(["14RI301", "Old Mill", "Private", "abc", " x "])
    assert all(phrases.find_in_each(["the 14ri301 of", "old-mill", "Private land"]))
    for text in ("14RI3010", "Old Millstone", "private land", "abc", "x", ""):
        assert phrases.find_in_each([text]) == [set()], text


def test_very_many_phrases_stay_in_arrow() -> None:
    values = pa.chunked_array([pa.array([f"14XX{number:07d} north field" for number in range(100_000)])])
    tracemalloc.start()
    phrases = Phrases(values)
    found = phrases.find_in_each(["see 14xx0000017, North Field", "see 14xx0000018 South Field", ""])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(one) for one in found] == [1, 0, 0]
    assert peak < 5_000_000


@pytest.mark.parametrize("seed", range(8))
def test_exactly_the_phrases_in_a_text_are_found(seed: int) -> None:
    chance = random.Random(seed)
    values = [some_text(chance, 3) for _ in range(300)]
    texts = [some_text(chance, 5) for _ in range(100)] + [""]
    wanted = {phrase_of(value) for value in values if len(value.strip()) >= 4} - {""}
    expected = [{phrase for phrase in wanted if occurs(phrase, text)} for text in texts]
    assert Phrases(values).find_in_each(texts) == expected
    assert any(expected)
    public = set().union(*expected[:20])
    assert Phrases(values).without(texts[:20]).find_in_each(texts) == [found - public for found in expected]


@pytest.mark.parametrize("seed", range(8))
def test_exactly_the_phrases_in_bytes_are_counted(seed: int) -> None:
    chance = random.Random(seed)
    values = sorted({some_text(chance, 3) for _ in range(300)})
    blobs = ["\0".join(some_text(chance, 4) for _ in range(30)).encode().lower() for _ in range(2)]
    small = {value.lower().encode() for value in values if len(value.strip()) >= 4 and phrase_of(value)}
    expected = sum(len(value) >= 6 and value in blob for value in small for blob in blobs)
    assert Phrases(values).count_in_bytes(blobs, 6) == expected

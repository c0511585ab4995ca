"""A message body is JSON within limits, or one short sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.errors import BodyUnreadable
from kfm_pipelines.events.body import MAX_BYTES, MAX_DEPTH, read_body

json_documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)

REFUSED = {
    "not UTF-8": (b'{"a": "\xff"}', "is not UTF-8"),
    "text that has no UTF-8": ('{"a": "\ud800"}', "is not UTF-8"),
    "half a surrogate pair, escaped": (r'{"a": "\ud800"}', "half a surrogate pair"),
    "half a surrogate pair in capitals": (r'{"a": "\uDBFF"}', "half a surrogate pair"),
    "half a surrogate pair as a name": (r'{"\udfff": 1}', "half a surrogate pair"),
    "not JSON": ("hello", "is not JSON"),
    "empty": ("", "is not JSON"),
    "two documents": ("{} {}", "is not JSON"),
    "a byte order mark": ("\ufeff{}", "is not JSON"),
    "NaN": ('{"a": NaN}', "NaN"),
    "Infinity": ("[Infinity]", "Infinity"),
    "-Infinity": ("[-Infinity]", "-Infinity"),
    "a float beyond range": ("[1e999]", "too large"),
    "5,000 digits": ("[" + "1" * 5000 + "]", "5000 digits"),
    "a name twice": ('{"a": {"b": 1, "b": 2}}', "'b' twice"),
    "one level too deep": ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper than 64"),
    "deeper than Python's stack": ("[" * 100_000 + "]" * 100_000, "nested deeper than 64"),
    "deep objects": ('{"a":' * 65 + "1" + "}" * 65, "nested deeper than 64"),
    "too large": (json.dumps("x" * MAX_BYTES), "at most 1048576"),
    "too large in bytes, not in characters": (
        json.dumps("é" * (MAX_BYTES // 2), ensure_ascii=False),
        "at most 1048576",
    ),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_unreadable_bodies_are_refused_in_one_short_line(body: str | bytes, reason: str) -> None:
    with pytest.raises(BodyUnreadable) as refusal:
        read_body(body)
    sentence = str(refusal.value)
    assert reason in sentence
    assert len(sentence) < 250
    assert sentence.isprintable()


def test_a_refusal_shows_little_of_the_body_and_no_control_characters() -> None:
    with pytest.raises(BodyUnreadable) as refusal:
        read_body("\x1b[31m\x00" + "secret" * 1000)
    sentence = str(refusal.value)
    assert sentence.isprintable()
    assert sentence.count("secret") < 20


@pytest.mark.parametrize("body", ["[" * MAX_DEPTH + "]" * MAX_DEPTH, json.dumps("x" * (MAX_BYTES - 2)), b"{}"])
def test_what_just_fits_is_read(body: str | bytes) -> None:
    assert read_body(body) == json.loads(body)


@pytest.mark.slow
@given(json_documents)
def test_honest_json_reads_back_as_written(document: object) -> None:
    assert read_body(json.dumps(document)) == document
    assert read_body(json.dumps(document, ensure_ascii=False).encode()) == document

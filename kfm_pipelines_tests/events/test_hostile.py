"""Whatever the bytes, a message is notices or one refusal: one line, short, nothing a terminal would obey."""

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events import Notice, normalise, resolve_event
from kfm_pipelines.events.body import MAX_BYTES
from kfm_pipelines.events.contracts import MAX_RECORDS
from kfm_pipelines_tests.events.test_body import json_documents
from kfm_pipelines_tests.fixtures.events.messages import EVERY, S3, SENTINEL_2, wrapped
from kfm_pipelines_tests.fixtures.events.notices import declared

NASTY_TEXT = ["\x00", "a\r\nb", "\x1b[31mred", "\u202eover", "\u2028", "../..", "%00%0d%0a", "\\", "x" * 5000, "٣", ""]
NASTY_NUMBERS = [2**53, -(2**53), 10**99, 1e308, -0.0, 5e-324]

nasty = st.sampled_from([*NASTY_TEXT, *NASTY_NUMBERS]) | json_documents


def outcome(body: str | bytes) -> tuple[Notice, ...] | str:
    """The notices, each folded or refused; or the refusal of the whole."""
    try:
        notices = normalise(body)
    except MessageRefused as refusal:
        check_sentence(str(refusal))
        return str(refusal)
    for notice in notices:
        try:
            resolve_event(notice, declared())
        except MessageRefused as refusal:
            check_sentence(str(refusal))
    return notices


def check_sentence(sentence: str) -> None:
    assert sentence.isprintable()
    assert 0 < len(sentence) < 1000


@given(st.text() | st.binary() | json_documents.map(json.dumps))
@settings(deadline=None)
def test_any_bytes_are_notices_or_one_refusal(body: str | bytes) -> None:
    outcome(body)


@st.composite
def mutants(draw: st.DrawFn, document: Any) -> Any:
    """The document with one value in it, at any depth, dropped, replaced, renamed or joined by another."""
    if isinstance(document, dict) and document:
        return draw(mutant_objects(document))
    if isinstance(document, list) and document:
        place = draw(st.integers(0, len(document) - 1))
        new = draw(st.lists(mutants(document[place]), max_size=2))
        return [*document[:place], *new, *document[place + 1 :]]
    return draw(nasty)


@st.composite
def mutant_objects(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    name, other = draw(st.sampled_from(sorted(document))), draw(st.text(max_size=20))
    rest = {kept: value for kept, value in document.items() if kept != name}
    return draw(
        st.one_of(
            mutants(document[name]).map(lambda new: document | {name: new}),
            nasty.map(lambda new: document | {name: new}),
            nasty.map(lambda new: document | {other: new}),
            st.just(rest),
            st.just(rest | {other: document[name]}),
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("document", EVERY.values(), ids=EVERY.keys())
@given(data=st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_broken_message_of_any_shape_is_notices_or_one_refusal(document: dict[str, Any], data: st.DataObject) -> None:
    mutant = data.draw(mutants(document))
    outcome(json.dumps(mutant))
    outcome(json.dumps(wrapped(mutant)))


@given(st.sampled_from(sorted(EVERY)), st.sampled_from(sorted(EVERY)))
@settings(deadline=None)
def test_two_shapes_in_one_document_are_notices_or_one_refusal(one: str, other: str) -> None:
    outcome(json.dumps(EVERY[one] | EVERY[other]))
    outcome(json.dumps(EVERY["fifo-envelope"] | {"payload": EVERY[one] | EVERY[other]}))


def texts(document: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all text in a document."""
    if isinstance(document, str):
        return [path]
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [found for name, value in items for found in texts(value, (*path, name))]


def with_text(document: Any, path: tuple[str | int, ...], text: str) -> Any:
    if not path:
        return text
    name, *rest = path
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    copy[name] = with_text(document[name], tuple(rest), text)
    return copy


@pytest.mark.parametrize("name", EVERY)
def test_nasty_text_anywhere_is_notices_without_control_characters_or_one_refusal(name: str) -> None:
    for path in texts(EVERY[name]):
        for text in NASTY_TEXT:
            notices = outcome(json.dumps(with_text(EVERY[name], path, text)))
            places = [getattr(notice, "asset_uri", "") for notice in notices if not isinstance(notice, str)]
            assert not [uri for uri in places if any(ord(letter) < 32 or letter in "\\\u2028" for letter in uri)]


BOMBS = {
    "nested lists": "[" * 500_000,
    "nested objects": '{"a":' * 200_000,
    "closed nested lists": "[" * 400_000 + "]" * 400_000,
    "nested payload": json.dumps(EVERY["fifo-envelope"]).replace('"kansas"', "[" * 300 + "]" * 300),
    "nested records": '{"Records":' + "[" * 60 + "]" * 60 + "}",
    "nested text": json.dumps(wrapped("[" * 100_000)),
    "5,000 digits": '{"Records":' + "9" * 5000 + "}",
    "5,000 digits in a fraction": '{"Records":0.' + "9" * 5000 + "}",
    "5,000 digits of exponent": '{"Records":1e' + "9" * 5000 + "}",
    "a large integer in a feed": json.dumps(SENTINEL_2 | {"orbit": 2**53}),
    "a million spaces": " " * MAX_BYTES,
    "a megabyte of text": json.dumps({"Records": "x" * (MAX_BYTES - 14)}),
    "a megabyte of names": "{" + ",".join(f'"{number}":0' for number in range(90_000)) + "}",
    "a megabyte of records": json.dumps({"Records": [0] * 300_000}),
    "a megabyte of broken records": json.dumps({"Records": [{}] * 250_000}),
    "thousands of good records": json.dumps(S3 | {"Records": S3["Records"] * 2000}),
    "thousands of good records in an envelope": json.dumps(
        EVERY["fifo-envelope"] | {"payload": S3 | {"Records": S3["Records"] * 2000}}
    ),
    "thousands of good tiles": json.dumps(SENTINEL_2 | {"tiles": [SENTINEL_2["tiles"][0]] * 2000}),
    "more than a megabyte": " " * (MAX_BYTES + 1),
    "NUL": "\x00",
    "NUL in text": '{"Records":"\x00"}',
    "NUL, escaped": json.dumps(EVERY["s3-notification"]).replace("streamflow.parquet", "\\u0000"),
    "half a surrogate pair": json.dumps(EVERY["s3-envelope"]).replace("streamflow.parquet", "\\ud800"),
    "half a surrogate pair in a name": '{"\\udfff":1}',
    "not UTF-8": b'{"Records":"\xed\xa0\x80"}',
    "CR and LF in a key": json.dumps(EVERY["s3-envelope"]).replace("streamflow.parquet", "a\\r\\nb"),
    "ANSI in an encoded key": json.dumps(EVERY["s3-notification"]).replace("streamflow.parquet", "%1B[2J"),
    "ANSI in a name": '{"\\u001b[2J":1}',
    "ANSI in a version": json.dumps(EVERY["auto-update"]).replace('"1.0"', '"9\\u001b[2J"'),
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused_in_one_short_line_and_soon(body: str | bytes) -> None:
    """A tick has twenty seconds for all its messages; each of these needs less than one."""
    begun = time.monotonic()
    assert isinstance(outcome(body), str)
    assert time.monotonic() - begun < 5


def of(count: int) -> list[dict[str, Any]]:
    """Each kind of message that holds several records, with so many."""
    record, tile = S3["Records"][0], SENTINEL_2["tiles"][0]
    several = [S3 | {"Records": [record] * count}, SENTINEL_2 | {"tiles": [tile] * count}]
    return [carried for one in several for carried in (one, EVERY["fifo-envelope"] | {"payload": one}, wrapped(one))]


def test_so_many_records_are_read_and_not_one_more() -> None:
    assert [len(normalise(json.dumps(document))) for document in of(MAX_RECORDS)] == [MAX_RECORDS] * 6
    expected = f"message has {MAX_RECORDS + 1} records; at most {MAX_RECORDS} are read"
    assert [outcome(json.dumps(document)) for document in of(MAX_RECORDS + 1)] == [expected] * 6


def test_too_many_records_are_refused_before_any_is_looked_at() -> None:
    """Not for another version and not for a broken field: finding those is what costs."""
    for records in ([{"eventVersion": "9.0"}] * 201, [0] * 201):
        assert "at most 200 are read" in str(outcome(json.dumps({"Records": records})))
        assert "at most 200 are read" in str(outcome(json.dumps(SENTINEL_2 | {"tiles": records})))


@given(st.text(st.characters(codec="utf-8", categories=["Cc", "Cf", "Zl", "Zp", "Co"]), min_size=1, max_size=5))
@example("\r\n")
@example("\x1b[31m")
@example("\u202e")
@settings(deadline=None)
def test_odd_characters_in_keys_never_reach_a_sentence(odd: str) -> None:
    for name, field in (("s3-envelope", "key"), ("nexrad", "Key"), ("sentinel-1", "path")):
        outcome(json.dumps(EVERY[name] | {field: f"usgs/streamflow/{odd}"}))

"""FIFO envelopes: the payload is read by its own shape or handed on, and no producer can take another's identity."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kfm_pipelines.errors import ContractBroken, ShapeUnknown
from kfm_pipelines.events import PayloadNotice, normalise
from kfm_pipelines.events.identity import dedupe_key_identities, feed_identities
from kfm_pipelines_tests.fixtures.aws.messages import fifo_envelope
from kfm_pipelines_tests.fixtures.events.changes import changed
from kfm_pipelines_tests.fixtures.events.messages import (
    AUTO_UPDATE,
    EVENT_ID,
    EVENTBRIDGE,
    FIFO,
    LANDSAT,
    NEXRAD,
    REMOVAL,
    S3,
    S3_ENVELOPE,
    SENTINEL_1,
    SENTINEL_2,
    SOURCE,
    TEST_EVENT,
    wrapped,
)
from kfm_pipelines_tests.fixtures.events.notices import NOON, objects

CARRIED = [S3, REMOVAL, EVENTBRIDGE, S3_ENVELOPE, AUTO_UPDATE, NEXRAD, LANDSAT, SENTINEL_1, SENTINEL_2]


def payload_notice(document: dict[str, Any]) -> PayloadNotice:
    (notice,) = normalise(json.dumps(document))
    assert isinstance(notice, PayloadNotice)
    return notice


def around(payload: dict[str, Any], dedupe_key: str | None = None) -> dict[str, Any]:
    return fifo_envelope(EVENT_ID, SOURCE, NOON, payload, dedupe_key)


def test_a_payload_of_no_shape_is_handed_on_with_its_text_and_whole_numbers() -> None:
    payload = {"tile": "p28r33", "row": 33, "cloud": 0.4, "ok": True, "none": None, "more": {"a": 1}, "list": ["x"]}
    notice = payload_notice(around(payload, "k-1") | {"priority": "high"})
    assert notice.payload == {"tile": "p28r33", "row": 33}
    assert (notice.event_source, notice.event_time, notice.priority) == (SOURCE, NOON, "high")
    assert notice.shape == "fifo-envelope"
    assert payload_notice(around(payload)).priority == "normal"


@pytest.mark.parametrize("payload", CARRIED)
def test_a_payload_of_a_known_shape_is_read_by_it(payload: dict[str, Any]) -> None:
    alone, carried = objects(payload), objects(around(payload, "k-1"))
    places = [(notice.asset_uri, notice.change, notice.event_time, notice.granule_start) for notice in alone]
    assert [(n.asset_uri, n.change, n.event_time, n.granule_start) for n in carried] == places != []
    assert {notice.shape for notice in carried} == {"fifo-envelope"}
    assert not {notice.identity for notice in carried} & {notice.identity for notice in alone}


def test_the_priority_of_the_envelope_counts_before_that_of_its_payload() -> None:
    low = AUTO_UPDATE | {"priority": "low"}
    assert objects(around(low))[0].priority == "low"
    assert objects(around(low) | {"priority": "high"})[0].priority == "high"


def test_a_dedupe_key_is_an_identity_under_the_name_of_its_source() -> None:
    again = FIFO | {"event_id": "019aec2b-9999-7abc-8def-0123456789ab", "event_time": "2025-12-05T00:00:00Z"}
    assert payload_notice(FIFO).identity == payload_notice(again).identity
    assert [payload_notice(FIFO).identity] == dedupe_key_identities(SOURCE, "gauges-2025-12-04T12Z", 1)
    other = FIFO | {"event_source": "kfm.hydrology.other"}
    assert payload_notice(FIFO).identity != payload_notice(other).identity


@pytest.mark.parametrize("absent", [..., None])
def test_without_a_dedupe_key_the_whole_body_is_the_identity(absent: object) -> None:
    document = changed(FIFO, "dedupe_key", absent)
    assert [payload_notice(document).identity] == feed_identities(document, 1)
    assert payload_notice(document).identity != payload_notice(document | {"payload": {"basin": "x"}}).identity


@pytest.mark.parametrize("payload", CARRIED)
def test_the_identity_of_the_object_inside_may_be_the_dedupe_key(payload: dict[str, Any]) -> None:
    (first, *_) = objects(payload)
    assert objects(around(payload, first.identity))[0].identity == first.identity


def test_the_identity_of_another_object_may_not() -> None:
    """Else a producer could make our record of another's event look like a duplicate of its own."""
    (victim,) = objects(S3_ENVELOPE | {"key": "usgs/streamflow/other.parquet"})
    for payload in (S3, NEXRAD, {"basin": "kansas"}):
        (notice,) = normalise(json.dumps(around(payload, victim.identity)))
        assert notice.identity != victim.identity
        assert [notice.identity] == dedupe_key_identities(SOURCE, victim.identity, 1)


def test_several_records_under_one_dedupe_key_are_numbered() -> None:
    notices = objects(around(SENTINEL_2, "k-1"))
    assert [notice.identity for notice in notices] == dedupe_key_identities(SOURCE, "k-1", 2)
    unnamed = around(SENTINEL_2)
    assert [notice.identity for notice in objects(unnamed)] == feed_identities(unnamed, 2)
    assert len(set(feed_identities(unnamed, 2) + dedupe_key_identities(SOURCE, "k-1", 2))) == 4


def test_one_of_several_records_may_keep_its_own_identity() -> None:
    second = {"Records": REMOVAL["Records"] + S3["Records"]}
    own = objects(S3)[0].identity
    first, last = objects(around(second, own))
    assert last.identity == own
    assert first.identity == dedupe_key_identities(SOURCE, own, 2)[0]


def test_a_test_event_inside_is_acknowledged_too() -> None:
    assert normalise(json.dumps(around(TEST_EVENT))) == ()


def test_an_envelope_in_an_envelope_is_refused() -> None:
    with pytest.raises(ShapeUnknown, match="FIFO envelope contains another FIFO envelope"):
        normalise(json.dumps(around(FIFO)))


def test_an_sns_envelope_around_it_changes_nothing() -> None:
    assert normalise(json.dumps(wrapped(FIFO))) == normalise(json.dumps(FIFO))


def test_a_broken_payload_of_a_known_shape_is_refused_as_that_shape() -> None:
    with pytest.raises(ContractBroken, match=r"^nexrad-filterable: "):
        normalise(json.dumps(around(changed(NEXRAD, "Key", ...))))


def test_versions_and_unknown_fields() -> None:
    assert payload_notice(FIFO | {"schema_version": "1.4", "newer": {"a": 1}}) == payload_notice(FIFO)
    with pytest.raises(ContractBroken, match=r"schema_version '2\.0' is another major version"):
        normalise(json.dumps(FIFO | {"schema_version": "2.0"}))


@pytest.mark.parametrize("event_time", ["2025-12-04T06:00:00-06:00", "2025-12-04T12:00:00Z"])
def test_times_are_read_as_utc(event_time: str) -> None:
    assert payload_notice(FIFO | {"event_time": event_time}).event_time == datetime(2025, 12, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("event_id", ..., "'event_id' is a required property"),
        ("event_id", "123e4567-e89b-12d3-a456-426614174000", "event_id must be a UUID of version 7"),
        ("event_id", f"{EVENT_ID}\n", "event_id must be a UUID of version 7"),
        ("event_source", ..., "'event_source' is a required property"),
        ("event_source", "landsat", "event_source must be kfm.<domain>.<pipeline>"),
        ("event_source", "kfm.a.b.c", "event_source must be kfm.<domain>.<pipeline>"),
        ("event_source", "kfm.A.b", "event_source must be kfm.<domain>.<pipeline>"),
        ("event_time", "2025-12-04T12:00:00", "event_time: .* is not an RFC 3339 timestamp"),
        ("dedupe_key", "", "dedupe_key must be text of 1 to 512 characters"),
        ("dedupe_key", "x" * 513, "dedupe_key must be text of 1 to 512 characters"),
        ("dedupe_key", 5, "dedupe_key must be text of 1 to 512 characters, not 5"),
        ("payload", ..., "'payload' is a required property"),
        ("payload", [1], "payload must be an object, not a list of 1"),
        ("payload", "{}", "payload must be an object, not '{}'"),
        ("priority", "urgent", "priority must be high, normal or low"),
    ],
)
def test_a_broken_envelope_is_one_sentence(path: str, value: object, reason: str) -> None:
    with pytest.raises(ContractBroken, match=f"^fifo-envelope-v1: .*{reason}") as refusal:
        normalise(json.dumps(changed(FIFO | {"priority": "low"}, path, value)))
    assert str(refusal.value).isprintable()

"""The FIFO envelope: one event always gives the same bytes, another event other bytes, and bad input is refused."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.declarations.words import EVENT_SOURCE
from kfm_pipelines.errors import ProducerMistaken
from kfm_pipelines.events import normalise
from kfm_pipelines.producer.envelope import (
    MAX_EVENT_SOURCE_LENGTH,
    Envelope,
    envelope,
    object_envelope,
    outgoing_message,
    require_valid_group,
)
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.settings import shipped_path

WHEN = datetime(2025, 12, 4, tzinfo=UTC)
SOURCE = "kfm.remote-sensing.landsat-refresh"
KEY = "landsat-2025-12-04T00:00Z"
PAYLOAD: dict[str, Any] = {"collection": "landsat", "tile": "p32r29"}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
times = st.timedeltas(timedelta(0), timedelta(days=365 * 8000)).map(lambda after: EPOCH + after)
keys = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=256)


def landsat(**changes: Any) -> Envelope:
    facts = {"event_source": SOURCE, "dedupe_key": KEY, "event_time": WHEN, "payload": PAYLOAD}
    return envelope(**{**facts, **changes})


def test_the_bytes_are_pinned() -> None:
    """Other bytes in another version would deliver every event in flight twice."""
    assert landsat().body == (
        '{"dedupe_key":"landsat-2025-12-04T00:00Z","event_id":"019ae6a8-9800-7fa5-9669-ca16e3e6b996",'
        '"event_source":"kfm.remote-sensing.landsat-refresh","event_time":"2025-12-04T00:00:00.000Z",'
        '"payload":{"collection":"landsat","tile":"p32r29"}}'
    )


@given(event_time=times, dedupe_key=keys)
def test_the_event_id_is_a_version_7_uuid_with_the_event_time(event_time: datetime, dedupe_key: str) -> None:
    found = UUID(landsat(event_time=event_time, dedupe_key=dedupe_key).event_id)
    assert (found.version, found.variant) == (7, "specified in RFC 4122")
    milliseconds = (event_time - EPOCH) // timedelta(milliseconds=1)
    assert found.int >> 80 == milliseconds


@given(event_time=times, dedupe_key=keys, tile=keys)
def test_the_body_is_canonical_and_has_the_given_fields(event_time: datetime, dedupe_key: str, tile: str) -> None:
    event = landsat(event_time=event_time, dedupe_key=dedupe_key, payload={"tile": tile})
    document = json.loads(event.body)
    assert rfc8785.dumps(document).decode() == event.body
    assert (document["event_id"], document["dedupe_key"], document["payload"]) == (
        event.event_id,
        dedupe_key,
        {"tile": tile},
    )


def test_neither_the_order_of_the_payload_nor_the_offset_of_the_time_matters() -> None:
    central = WHEN.astimezone(timezone(timedelta(hours=-6)))
    assert landsat(payload=dict(reversed(PAYLOAD.items())), event_time=central).body == landsat().body


@pytest.mark.parametrize(
    "change",
    [
        {"dedupe_key": KEY + "x"},
        {"event_source": "kfm.remote-sensing.landsat-replay"},
        {"event_time": WHEN + timedelta(milliseconds=1)},
    ],
)
def test_another_event_has_another_id_and_other_bytes(change: dict[str, Any]) -> None:
    assert landsat(**change).event_id != landsat().event_id
    assert landsat(**change).body != landsat().body


def nested(levels: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for _ in range(levels):
        document = {"in": document}
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event_source": "kfm.landsat"}, "event_source must be kfm.<domain>.<pipeline>"),
        ({"event_source": "nasa.remote-sensing.landsat"}, "event_source must be"),
        ({"event_source": "kfm.remote sensing.landsat"}, "event_source must be"),
        ({"event_source": SOURCE + "\n"}, "event_source must be"),
        ({"event_source": "kfm.hydro_.-x"}, "event_source must be"),
        ({"event_source": "kfm.hydro.a--b"}, "event_source must be"),
        ({"event_source": "kfm.a." + "b" * 195}, "at most 200 characters"),
        ({"dedupe_key": ""}, "dedupe_key must be 1 to 256"),
        ({"dedupe_key": "x" * 257}, "dedupe_key must be 1 to 256"),
        ({"dedupe_key": "two\nlines"}, "dedupe_key must be"),
        ({"dedupe_key": "half \ud800"}, "dedupe_key must be"),
        ({"event_time": datetime(2025, 12, 4)}, "has no UTC offset"),  # noqa: DTZ001 -- the mistake
        ({"event_time": datetime(1969, 12, 31, tzinfo=UTC)}, "before 1970"),
        ({"payload": [1]}, "payload must be an object"),
        ({"payload": {"a": float("nan")}}, "canonical JSON"),
        ({"payload": {"a": 2**60}}, "canonical JSON"),
        ({"payload": {1: "a"}}, "canonical JSON"),
        ({"payload": {"a": WHEN}}, "canonical JSON"),
        ({"payload": {"a": "\ud800"}}, "canonical JSON"),
        ({"payload": nested(5000)}, "canonical JSON"),
        ({"payload": nested(70)}, "nested deeper"),
        ({"payload": {"a": "x" * 1024 * 1024}}, "at most 1048576"),
        ({"payload": {"a": "\uffff"}}, "which SQS refuses"),
        ({"payload": {"Records": [{}] * 201}}, "at most 200 are read"),
        ({"payload": {"event_source": SOURCE}}, "another FIFO envelope"),
    ],
)
def test_an_envelope_that_would_be_refused_is_never_built(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProducerMistaken, match=message):
        landsat(**change)


def test_sources_follow_the_contract() -> None:
    schema = json.loads((shipped_path("resources") / "contracts" / "fifo-envelope-v1.schema.json").read_text())
    source = schema["properties"]["event_source"]
    pattern = source["pattern"].removeprefix("^").removesuffix(r"$(?!\n)")
    assert (pattern, source["maxLength"]) == (EVENT_SOURCE, MAX_EVENT_SOURCE_LENGTH)


sources = st.from_regex(r"kfm\.[a-z0-9_-]{1,12}\.[a-z0-9_-]{1,12}", fullmatch=True) | st.integers(190, 210).map(
    lambda length: "kfm.a.".ljust(length, "b")
)


@given(sources, keys, times, st.dictionaries(st.sampled_from(["tile", "path", "source", "payload"]), keys))
@settings(deadline=None)
def test_every_envelope_can_be_read(source: str, key: str, event_time: datetime, payload: dict[str, Any]) -> None:
    try:
        sent = envelope(source, key, event_time, payload)
    except ProducerMistaken:
        return
    [notice] = normalise(sent.body)
    assert notice.event_time == event_time.replace(microsecond=event_time.microsecond // 1000 * 1000)


def test_an_objects_envelope_has_the_identity_of_s3s_own_notice() -> None:
    facts: dict[str, Any] = {"bucket": "kfm-ingest", "object_key": "a b/é.parquet", "size": 3, "version_id": "v"}
    event = object_envelope("kfm.usgs.streamflow", event_time=WHEN, etag='"e"', **facts)
    [notice] = normalise(json.dumps(s3_notification(event_time=WHEN, etag="e", **facts)))

    assert event.dedupe_key == notice.identity
    assert event.payload == {
        "event_id": event.event_id,
        "source": "s3:ObjectCreated:Put",
        "bucket": "kfm-ingest",
        "key": "a b/é.parquet",
        "etag": "e",
        "version_id": "v",
        "size": 3,
        "event_time": "2025-12-04T00:00:00.000Z",
    }


def test_attributes_only_repeat_fields_of_the_body() -> None:
    assert outgoing_message(landsat()).attributes == {"event_source": SOURCE}
    assert outgoing_message(landsat(), routing=["tile"]).attributes == {"event_source": SOURCE, "tile": "p32r29"}
    with pytest.raises(ProducerMistaken, match="'priority' is not one"):
        outgoing_message(landsat(), routing=["tile", "priority"])


def test_the_source_is_the_default_group() -> None:
    assert outgoing_message(landsat()).group == SOURCE
    assert outgoing_message(landsat(), group="p32r29").group == "p32r29"


@pytest.mark.parametrize("group", ["", "two words", "é", "x" * 129, "tab\t", "line\n"])
def test_a_group_that_sqs_refuses_is_refused_here(group: str) -> None:
    with pytest.raises(ProducerMistaken, match="message group"):
        require_valid_group(group)


@pytest.mark.parametrize("group", ["x" * 128, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "usgs-streamflow"])
def test_a_group_that_sqs_accepts_is_accepted(group: str) -> None:
    assert require_valid_group(group) == group

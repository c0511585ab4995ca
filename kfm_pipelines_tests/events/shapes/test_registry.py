"""One door for every shape: envelopes come off once, control messages are acknowledged, the rest is refused."""

import json
from typing import Any

import pytest

from kfm_pipelines.errors import BodyUnreadable, ContractBroken, ShapeUnknown
from kfm_pipelines.events import normalise
from kfm_pipelines_tests.fixtures.aws.messages import wrap_in_sns
from kfm_pipelines_tests.fixtures.events.messages import EVERY, S3, TEST_EVENT, TOPIC, wrapped
from kfm_pipelines_tests.fixtures.events.notices import NOON

# What each sample is read as; the envelopes around others are named for what is inside.
SHAPES = {name: name for name in EVERY} | {
    "s3-removal": "s3-notification",
    "eventbridge-removal": "eventbridge",
    "fifo-envelope-s3": "fifo-envelope",
    "sns": "s3-notification",
}


@pytest.mark.parametrize("name", EVERY)
def test_every_shape_is_recognised_and_unknown_fields_pass(name: str) -> None:
    expected = set() if name == "s3-test-event" else {SHAPES[name]}
    assert {notice.shape for notice in normalise(json.dumps(EVERY[name]))} == expected
    assert {notice.shape for notice in normalise(json.dumps(EVERY[name] | {"newer": {"a": [1]}}))} == expected


@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"sns"}))
def test_an_sns_envelope_changes_nothing(name: str) -> None:
    assert normalise(json.dumps(wrapped(EVERY[name]))) == normalise(json.dumps(EVERY[name]))


@pytest.mark.parametrize("name", ["auto-update", "s3-envelope"])
def test_an_older_shape_may_grow_fields_of_the_fifo_envelope(name: str) -> None:
    grown = EVERY[name] | {"event_source": "kfm.a.b", "event_id": "x", "payload": {}}
    assert [notice.shape for notice in normalise(json.dumps(grown))] == [name]


@pytest.mark.parametrize(
    "document",
    [
        TEST_EVENT,
        TEST_EVENT | {"Bucket": 5, "Service": None},
        wrapped(TEST_EVENT),
        {"Type": "SubscriptionConfirmation", "TopicArn": TOPIC, "Token": "t", "Message": "You have chosen..."},
        {"Type": "UnsubscribeConfirmation", "TopicArn": TOPIC, "Token": "t", "Message": "You have chosen..."},
    ],
)
def test_control_messages_are_acknowledged(document: dict[str, Any]) -> None:
    assert normalise(json.dumps(document)) == ()


def test_a_second_envelope_is_refused() -> None:
    with pytest.raises(ShapeUnknown, match="only one envelope is unwrapped"):
        normalise(json.dumps(wrapped(wrapped(S3))))


@pytest.mark.parametrize("inner", [None, 1, {"Records": []}, ...])
def test_an_envelope_without_text_inside_is_refused(inner: object) -> None:
    document = wrapped(S3) | {"Message": inner}
    if inner is ...:
        del document["Message"]
    with pytest.raises(ContractBroken, match=r"^sns-notification: .*(Message must be text|'Message' is a required)"):
        normalise(json.dumps(document))


def test_the_message_inside_an_envelope_has_the_same_limits() -> None:
    with pytest.raises(BodyUnreadable, match="twice"):
        normalise(json.dumps(wrap_in_sns('{"a":1,"a":2}', TOPIC, "m-1", NOON)))


def test_an_unknown_shape_is_described_by_its_fields() -> None:
    with pytest.raises(ShapeUnknown, match=r"top-level fields are 'Bucket', 'SiteID'$"):
        normalise('{"SiteID": "KTWX", "Bucket": "b"}')


def test_the_description_of_an_unknown_shape_is_bounded() -> None:
    with pytest.raises(ShapeUnknown, match="and 992 more") as refusal:
        normalise(json.dumps({f"{number:04d}\x1b" + "x" * 500: number for number in range(1000)}))
    assert len(str(refusal.value)) < 1000
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("body", ["[]", "null", "1", '"text"', "[{}]"])
def test_a_message_must_be_an_object(body: str) -> None:
    with pytest.raises(ShapeUnknown, match="must be a JSON object"):
        normalise(body)

"""One door for every shape: envelopes come off once, control messages are acknowledged, the rest is refused."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import BodyUnreadable, ContractBroken, MessageRefused, ShapeUnknown
from kfm_pipelines.events import fold, normalise
from kfm_pipelines.events.messages import auto_update, s3_notification, sns_wrapped
from kfm_pipelines_tests.events.given import KEY_AT_03, NOON, declared
from kfm_pipelines_tests.events.test_body import json_documents

TOPIC = "arn:aws:sns:us-east-1:123456789012:kfm-ingest"
S3 = s3_notification("kfm-ingest", KEY_AT_03, "abc", 10, "v1", NOON, "00AB")
AUTO_UPDATE = auto_update("usgs/streamflow", f"s3://kfm-ingest/{KEY_AT_03}", "abc", NOON, NOON, NOON)
TEST_EVENT = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "kfm-ingest"}


def wrapped(document: object) -> dict[str, Any]:
    return sns_wrapped(json.dumps(document), TOPIC, "m-1", NOON)


@pytest.mark.parametrize("document", [S3, AUTO_UPDATE])
def test_an_sns_envelope_changes_nothing(document: dict[str, Any]) -> None:
    assert normalise(json.dumps(wrapped(document))) == normalise(json.dumps(document)) != ()


@pytest.mark.parametrize(
    "document",
    [
        TEST_EVENT,
        wrapped(TEST_EVENT),
        {"Type": "SubscriptionConfirmation", "TopicArn": TOPIC, "Token": "t", "Message": "You have chosen..."},
        {"Type": "UnsubscribeConfirmation", "TopicArn": TOPIC, "Token": "t", "Message": "You have chosen..."},
    ],
)
def test_control_messages_are_acknowledged(document: dict[str, Any]) -> None:
    assert normalise(json.dumps(document)) == ()


def test_a_second_envelope_is_refused() -> None:
    with pytest.raises(ShapeUnknown, match="one envelope is read, not two"):
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
        normalise(json.dumps(sns_wrapped('{"a":1,"a":2}', TOPIC, "m-1", NOON)))


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


def broken_copies_of(document: object) -> st.SearchStrategy[object]:
    """The document with any one value in it replaced by any JSON."""
    if isinstance(document, dict):
        return st.one_of(json_documents, *(broken_field(document, name) for name in document))
    if isinstance(document, list):
        return st.one_of(
            json_documents, *(st.lists(broken_copies_of(item), min_size=1, max_size=2) for item in document)
        )
    return json_documents


def broken_field(document: dict[str, object], name: str) -> st.SearchStrategy[object]:
    return broken_copies_of(document[name]).map(lambda new: document | {name: new})


def refusal_of(body: str | bytes) -> str:
    try:
        for notice in normalise(body):
            fold(notice, declared())
    except MessageRefused as refusal:
        return str(refusal)
    return ""


def check_notices_or_one_refusal(body: str | bytes) -> None:
    sentence = refusal_of(body)
    assert sentence.isprintable()
    assert len(sentence) < 1000


@given(st.text() | st.binary())
@example("[" * 100_000)
@settings(deadline=None)
def test_any_text_is_notices_or_one_refusal(body: str | bytes) -> None:
    check_notices_or_one_refusal(body)


@given(st.one_of([broken_copies_of(document) for document in (S3, AUTO_UPDATE, TEST_EVENT, wrapped(S3))]))
@settings(deadline=None, max_examples=500)
def test_any_json_near_a_known_shape_is_notices_or_one_refusal(document: object) -> None:
    check_notices_or_one_refusal(json.dumps(document))
    check_notices_or_one_refusal(json.dumps(wrapped(document)))

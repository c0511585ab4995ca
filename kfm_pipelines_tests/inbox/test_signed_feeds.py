"""A feed that requires signatures takes nothing that its topic has not sent."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.aws.signatures import SignatureChecker
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import SenderUnproven, ServiceUnavailable
from kfm_pipelines.inbox.parse import await_certificates, read_message
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines_tests.fixtures.aws.signing import TOPIC, certificate, signed
from kfm_pipelines_tests.fixtures.events.notices import KEY_AT_03, declared


def message() -> str:
    at = datetime(2025, 12, 4, 3, tzinfo=UTC)
    notice = s3_notification(
        bucket="kfm-ingest", object_key=KEY_AT_03, etag="abc", size=1, version_id=None, event_time=at, sequencer="1"
    )
    return json.dumps(notice)


OURS = SignatureChecker(lambda _: certificate())


def listening(signature: str) -> Datasets:
    document = declared()["usgs/streamflow"].model_dump(mode="json")
    document["input"]["provider"] = {"topic": TOPIC, "signature": signature}
    return Datasets({"usgs/streamflow": Dataset.model_validate(document)})


def unreachable(_: str) -> bytes:
    raise ServiceUnavailable("nothing answers")


def test_what_is_signed_is_an_event() -> None:
    read = read_message(Message(json.dumps(signed(message()))), listening("required"), OURS)
    assert (len(read.events), read.refusal) == (1, None)


@pytest.mark.parametrize("body", [message(), json.dumps(signed(message()) | {"Signature": "FAKE"})])
def test_what_is_not_signed_is_a_dead_letter(body: str) -> None:
    """So is what somebody has put into the queue without SNS."""
    read = read_message(Message(body), listening("required"), OURS)
    assert read.events == ()
    assert read.refusal is not None
    assert isinstance(read.refusal.error, SenderUnproven)


def test_who_cannot_check_takes_nothing() -> None:
    read = read_message(Message(json.dumps(signed(message()))), listening("required"))
    assert read.refusal is not None
    assert "nothing here can check a signature" in str(read.refusal.error)


def test_without_the_requirement_no_signature_is_needed() -> None:
    assert read_message(Message(message()), listening("unchecked")).events


@pytest.mark.parametrize(("signature", "postponed"), [("required", 1), ("unchecked", 0)])
def test_a_message_waits_in_the_queue_while_its_certificate_is_out_of_reach(signature: str, postponed: int) -> None:
    theirs, other = Message(json.dumps(signed(message()))), Message(message())
    judged, waiting = await_certificates([theirs, other], listening(signature), SignatureChecker(unreachable))
    assert waiting == postponed
    assert judged == ([other] if postponed else [theirs, other])


def test_a_forgery_does_not_wait() -> None:
    forged: dict[str, Any] = signed(message(), SigningCertURL="https://evil.example/x.pem")
    judged, waiting = await_certificates(
        [Message(json.dumps(forged))], listening("required"), SignatureChecker(unreachable)
    )
    assert (len(judged), waiting) == (1, 0)

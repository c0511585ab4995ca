"""A message of a provider counts only if SNS has signed it for the declared topic."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kfm_pipelines.aws.signatures import SignatureChecker
from kfm_pipelines.errors import SenderUnproven, ServiceUnavailable
from kfm_pipelines_tests.fixtures.aws.signing import CERTIFICATE_URL, NOW, TOPIC, certificate, signed


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("fields", [{}, {"Subject": "Amazon S3 Notification"}])
def test_what_sns_has_signed_passes(version: str, fields: dict[str, str]) -> None:
    SignatureChecker(lambda _: certificate()).check(signed("{}", version=version, **fields), TOPIC, NOW)


def test_a_certificate_is_fetched_once() -> None:
    fetched = []

    def download(url: str) -> bytes:
        fetched.append(url)
        return certificate()

    checker = SignatureChecker(download)
    for message in ("one", "two", "three"):
        checker.check(signed(message), TOPIC, NOW)
    assert fetched == [CERTIFICATE_URL]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda one: {**one, "Message": "{ }"}, "the signature of SNS on the message is wrong"),
        (lambda one: {**one, "Subject": "new"}, "the signature of SNS on the message is wrong"),
        (lambda one: {**one, "Signature": "FAKE"}, "the signature of SNS on the message is wrong"),
        (lambda one: {**one, "Signature": "%%"}, "the signature of SNS on the message is wrong"),
        (lambda one: {name: one[name] for name in one if name != "Signature"}, "is wrong"),
        (lambda one: {**one, "SignatureVersion": "3"}, "not signed in a way that SNS signs"),
        (lambda one: {**one, "TopicArn": "arn:aws:sns:us-west-2:1:mine"}, "is from topic .*mine.*, not arn:aws:sns"),
        (lambda one: {}, "is from topic"),
    ],
)
def test_anything_else_is_refused(change: Callable[[dict[str, Any]], dict[str, Any]], sentence: str) -> None:
    with pytest.raises(SenderUnproven, match=sentence):
        SignatureChecker(lambda _: certificate()).check(change(signed("{}")), TOPIC, NOW)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/SimpleNotificationService-00.pem",
        CERTIFICATE_URL.replace("https", "http"),
        CERTIFICATE_URL.replace("amazonaws.com", "amazonaws.com.evil.example"),
        CERTIFICATE_URL.replace("https://", "https://evil.example@"),
        CERTIFICATE_URL.replace(".com/", ".com:8443/"),
        CERTIFICATE_URL.replace(".pem", ".pem?x=1"),
        CERTIFICATE_URL.replace("/Simple", "/../Simple"),
        CERTIFICATE_URL.replace("us-west-2", "us-east-1"),
        "https://[",
        "",
    ],
)
def test_no_certificate_is_fetched_from_elsewhere(url: str) -> None:
    def download(_: str) -> bytes:
        raise AssertionError("nothing may be fetched")

    with pytest.raises(SenderUnproven, match=r"the certificate must come from sns\.us-west-2\.amazonaws\.com"):
        SignatureChecker(download).check(signed("{}", SigningCertURL=url), TOPIC, NOW)


@pytest.mark.parametrize("days", [-1000, 1000])
def test_a_certificate_counts_only_while_it_is_valid(days: int) -> None:
    short = certificate(NOW - timedelta(days=365), NOW + timedelta(days=365))
    with pytest.raises(SenderUnproven, match="is not valid now"):
        SignatureChecker(lambda _: short).check(signed("{}"), TOPIC, NOW + timedelta(days=days))


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(SenderUnproven, match="cannot be read"):
        SignatureChecker(lambda _: b"<html>").check(signed("{}"), TOPIC, NOW)


def test_a_certificate_out_of_reach_is_not_a_forgery() -> None:
    def download(_: str) -> bytes:
        raise ServiceUnavailable("nothing answers")

    checker = SignatureChecker(download)
    assert not checker.has_certificate(signed("{}"), TOPIC)
    assert checker.has_certificate(signed("{}", SigningCertURL="https://evil.example/x.pem"), TOPIC)
    assert SignatureChecker(lambda _: certificate()).has_certificate(signed("{}"), TOPIC)

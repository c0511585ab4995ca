"""AWS errors become ours, by class: whether to come again, to ask a person, or to give up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import (
    ConnectTimeoutError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    ReadTimeoutError,
)

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import error_class_for_status, translate_aws_errors
from kfm_pipelines.errors import KfmError, ObjectForbidden, ObjectMissing, ServiceUnavailable, Terminal
from kfm_pipelines.local.process import LOOPBACK, free_port
from kfm_pipelines.local.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def impatient_client(port: int) -> "S3Client":
    """A client that asks once, so that a test need not wait for its patience to end."""
    return boto3.client(
        "s3",
        endpoint_url=f"http://{LOOPBACK}:{port}",
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


@contextmanager
def service_that_answers(status: int, body: bytes, promised: int | None = None) -> Iterator["S3Client"]:
    """An S3 that gives everybody the same answer, of which it may promise more than it sends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if promised is None else promised))
            self.send_header("ETag", '"e"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 -- http.server's name

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield impatient_client(server.server_port)
        finally:
            server.shutdown()
            thread.join()


def error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>".encode()


@pytest.mark.parametrize(
    ("status", "code", "named"),
    [
        (404, "NoSuchKey", ObjectMissing),
        (404, "NoSuchBucket", ObjectMissing),
        (404, "NoSuchVersion", ObjectMissing),
        (403, "AccessDenied", ObjectForbidden),
        (403, "InvalidAccessKeyId", ObjectForbidden),
        (403, "SignatureDoesNotMatch", ObjectForbidden),
        (500, "InternalError", ServiceUnavailable),
        (503, "SlowDown", ServiceUnavailable),
        (503, "ServiceUnavailable", ServiceUnavailable),
        (502, "", ServiceUnavailable),
        (429, "TooManyRequests", ServiceUnavailable),
        (408, "RequestTimeout", ServiceUnavailable),
        (400, "RequestTimeout", ServiceUnavailable),
        (400, "ThrottlingException", ServiceUnavailable),
        (400, "Throttling", ServiceUnavailable),
        (400, "ExpiredToken", ServiceUnavailable),
        (403, "RequestTimeTooSkewed", ServiceUnavailable),
    ],
)
def test_a_response_becomes_the_matching_error(status: int, code: str, named: type[KfmError]) -> None:
    with (
        service_that_answers(status, error(code) if code else b"") as client,
        pytest.raises(named, match=r"^reading one: ") as raised,
        translate_aws_errors("reading one"),
    ):
        client.get_object(Bucket="bucket", Key="one")
    assert type(raised.value) is named
    assert code in str(raised.value)


@pytest.mark.parametrize(("status", "named"), [(404, ObjectMissing), (403, ObjectForbidden), (500, ServiceUnavailable)])
def test_an_answer_without_a_body_is_known_by_its_status(status: int, named: type[KfmError]) -> None:
    with (
        service_that_answers(status, b"") as client,
        pytest.raises(named, match=f"^looking: .*{status}"),
        translate_aws_errors("looking"),
    ):
        client.head_object(Bucket="bucket", Key="one")


@pytest.mark.parametrize(
    ("statuses", "named"),
    [
        ([500, 502, 503, 504, 507, 599, 408, 429], ServiceUnavailable),
        ([401, 403], ObjectForbidden),
        ([404, 410], ObjectMissing),
        ([0, 301, 400, 402, 405, 406, 409, 411, 412, 413, 416, 422], Terminal),
    ],
)
def test_every_status_has_one_meaning(statuses: list[int], named: type[KfmError]) -> None:
    assert [error_class_for_status(status) for status in statuses] == [named] * len(statuses)


@pytest.mark.parametrize(
    ("status", "named"),
    [(401, ObjectForbidden), (403, ObjectForbidden), (404, ObjectMissing), (410, ObjectMissing)],
)
def test_a_code_nobody_knows_is_judged_by_its_status(status: int, named: type[KfmError]) -> None:
    with (
        service_that_answers(status, error("Novelty")) as client,
        pytest.raises(named),
        translate_aws_errors("reading one"),
    ):
        client.get_object(Bucket="bucket", Key="one")


def test_arguments_that_boto_itself_refuses_are_not_tried_again() -> None:
    with (
        pytest.raises(Terminal, match=r"^reading one: Parameter validation failed: .*Bucket") as raised,
        translate_aws_errors("reading one"),
    ):
        impatient_client(free_port()).get_object(Key="one")  # type: ignore[call-arg]
    assert type(raised.value) is Terminal


def test_an_answer_nobody_foresaw_is_not_tried_again() -> None:
    with (
        service_that_answers(400, error("InvalidArgument")) as client,
        pytest.raises(Terminal, match=r"^reading one: InvalidArgument$"),
        translate_aws_errors("reading one"),
    ):
        client.get_object(Bucket="bucket", Key="one")


def test_a_body_that_ends_too_early_may_be_whole_next_time() -> None:
    with (
        service_that_answers(200, b"half", promised=8) as client,
        pytest.raises(ServiceUnavailable, match=r"^reading one: "),
        translate_aws_errors("reading one"),
    ):
        client.get_object(Bucket="bucket", Key="one")["Body"].read()


def test_a_refused_connection_may_be_taken_later() -> None:
    with (
        pytest.raises(ServiceUnavailable, match=r"^reading one: the service cannot be reached$"),
        translate_aws_errors("reading one"),
    ):
        impatient_client(free_port()).get_object(Bucket="bucket", Key="one")


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (ConnectTimeoutError(endpoint_url="http://s3"), ServiceUnavailable),
        (ReadTimeoutError(endpoint_url="http://s3"), ServiceUnavailable),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), ServiceUnavailable),
        (NoCredentialsError(), ObjectForbidden),
        (NoRegionError(), ObjectForbidden),
    ],
)
def test_what_the_client_meets_before_any_answer(raised: Exception, named: type[KfmError]) -> None:
    with pytest.raises(named, match=r"^asking: ") as found, translate_aws_errors("asking"):
        raise raised
    assert found.value.__cause__ is raised


def test_the_emulator_responds_as_aws_does(stack: Stack) -> None:
    with pytest.raises(ObjectMissing, match="NoSuchBucket"), translate_aws_errors("reading"):
        s3_client().get_object(Bucket="no-such-bucket-at-all", Key="one")
    with pytest.raises(ObjectMissing, match="404"), translate_aws_errors("looking"):
        s3_client().head_bucket(Bucket="no-such-bucket-at-all")


def test_what_is_no_error_of_aws_passes_through() -> None:
    with pytest.raises(KeyError), translate_aws_errors("asking"):
        raise KeyError
    with translate_aws_errors("asking"):
        pass

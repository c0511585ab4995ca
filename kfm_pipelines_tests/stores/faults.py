"""S3 having a bad day, on the wire between boto3 and the emulator."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from botocore.httpsession import URLLib3Session

from kfm_pipelines.messaging.clients import s3_client

# What becomes of a request; None lets it through.
Fault = Callable[[Any], AWSResponse | None]


def answers(status: int, code: str) -> Fault:
    """The service refuses, and nothing is done."""
    body = f"<Error><Code>{code}</Code><Message>a bad day</Message></Error>".encode()
    return lambda request: AWSResponse(request.url, status, HTTPHeaders(), _Raw(body))


def reset(request: Any) -> AWSResponse | None:
    """The connection goes before the request has arrived."""
    raise ConnectionClosedError(endpoint_url=request.url)


def lost(request: Any) -> AWSResponse | None:
    """The request is carried out, and the connection goes before the answer has arrived."""
    URLLib3Session().send(request)
    raise ConnectionClosedError(endpoint_url=request.url)


def slow(request: Any) -> AWSResponse | None:
    """The request is carried out, so slowly that nobody waits for the answer."""
    URLLib3Session().send(request)
    raise ReadTimeoutError(endpoint_url=request.url)


def conflict(request: Any) -> AWSResponse | None:
    """Another conditional write is under way; one without a condition does not mind."""
    if not {"If-Match", "If-None-Match"} & set(request.headers):
        return None
    return answers(409, "ConditionalRequestConflict")(request)


def damaged(request: Any) -> AWSResponse | None:
    """A byte changes on the way."""
    whole = request.body if isinstance(request.body, bytes) else request.body.read()
    request.body = b"?" + whole[1:]
    return None


FAULTS: Mapping[str, Fault] = {
    "500": answers(500, "InternalError"),
    "503": answers(503, "SlowDown"),
    "reset": reset,
    "lost": lost,
    "slow": slow,
}


@contextmanager
def meeting(fault: Fault, operation: str, met: Callable[[int], bool] = lambda call: call == 1) -> Iterator[list[str]]:
    """Those calls of the operation that are `met`, counted from 1, meet the fault; which objects all calls were about
    is in the list. boto3 does not rest between its attempts."""
    calls: list[str] = []

    def send(request: Any, **_: object) -> AWSResponse | None:
        calls.append(request.url)
        return fault(request) if met(len(calls)) else None

    hooks: Any = s3_client().meta.events
    hooks.register(f"before-send.s3.{operation}", send)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
        try:
            yield calls
        finally:
            hooks.unregister(f"before-send.s3.{operation}", send)


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._body

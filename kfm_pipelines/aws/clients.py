"""boto3 clients, one of each per process, configured by boto3's usual variables, and the bytes exchanged with S3."""

import logging
import os
from collections.abc import Iterable, Mapping
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import SettingsInvalid

if TYPE_CHECKING:
    from boto3 import Session
    from botocore.awsrequest import AWSPreparedRequest
    from botocore.loaders import Loader
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

# One retry for a dropped connection. Longer waits belong to the retry policy: nothing sleeps in a tick or a run.
ATTEMPTS = 2
CONNECT_SECONDS = 3
READ_SECONDS = 30
# boto waits up to 1, 2, 4, … seconds between attempts, 20 at most.
MAX_CALL_SECONDS = ATTEMPTS * (CONNECT_SECONDS + READ_SECONDS) + sum(min(2**wait, 20) for wait in range(ATTEMPTS - 1))


class Traffic:
    """Bytes of request and response bodies so far, without headers; retries count again. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.received = 0
        self.sent = 0

    def add(self, *, received: int = 0, sent: int = 0) -> None:
        with self._lock:
            self.received += received
            self.sent += sent


traffic = Traffic()  # of this process, with S3 only


@cache
def s3_client(region: str | None = None) -> "S3Client":
    """Without a region, for the configured one."""
    client: S3Client = _client("s3", region)
    client.meta.events.register("before-send.s3", _count_request)
    client.meta.events.register("response-received.s3", _count_response)
    return client


@cache
def sqs_client() -> "SQSClient":
    client: SQSClient = _client("sqs")
    return client


@cache
def sns_client(region: str | None = None) -> "SNSClient":
    """Without a region, for the configured one. A topic can only be reached in its own."""
    client: SNSClient = _client("sns", region)
    return client


@cache
def secrets_client() -> "SecretsManagerClient":
    # botocore writes every response to its debug log, and a response of this service is a secret.
    logging.getLogger("botocore.parsers").addFilter(lambda record: record.levelno > logging.DEBUG)
    client: SecretsManagerClient = _client("secretsmanager")
    return client


@cache
def service_models() -> "Loader":
    """Reads the description of a service once per process; boto3 would read it again for every client."""
    from botocore.loaders import create_loader

    return create_loader(os.environ.get("AWS_DATA_PATH"))


def load_service_models(*services: Any) -> None:
    """Reads the descriptions before this process forks, without credentials and without the network."""
    from botocore.session import get_session

    session = get_session({"profile": (None, None, None, None)})
    session.register_component("data_loader", service_models())
    session.set_credentials("none", "none")  # without any, botocore would ask the network for them
    for service in services:
        session.create_client(service, "us-east-1")


def new_session() -> "Session":
    import boto3
    from botocore.session import get_session

    session = get_session()
    session.register_component("data_loader", service_models())
    return boto3.Session(botocore_session=session)


def _client(service: Any, region: str | None = None) -> Any:
    """Reports a missing region, an unknown profile or a malformed endpoint, which are known before the first call."""
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        # An emulator has one address; bucket.127.0.0.1 does not resolve.
        s3={"addressing_style": "path" if os.environ.get("AWS_ENDPOINT_URL") else "auto"},
    )
    try:
        return new_session().client(service, config=config, region_name=region)
    except (BotoCoreError, ValueError) as error:
        raise SettingsInvalid(f"the AWS settings do not work: {' '.join(str(error).split())}") from error


def _count_request(request: "AWSPreparedRequest", **_: object) -> None:
    """Runs before every attempt. Returns None because boto would take any other value for the response."""
    traffic.add(sent=_content_length(request.headers.items()))


def _count_response(response_dict: Mapping[str, Any] | None = None, **_: object) -> None:
    """Counts a streamed body by its Content-Length; an attempt without a response counts nothing."""
    if response_dict is not None:
        body, headers = response_dict["body"], response_dict["headers"]
        traffic.add(received=len(body) if isinstance(body, bytes) else _content_length(headers.items()))


def _content_length(headers: Iterable[tuple[str, Any]]) -> int:
    stated = {name.lower(): value for name, value in headers}
    return int(stated.get("content-length") or stated.get("x-amz-decoded-content-length") or 0)

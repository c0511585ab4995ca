"""boto3 clients, one of each per process, made from boto3's usual variables.

Belongs here: how patient the clients are, and that what goes to S3 is counted. Does not: any call, or what an error
means (`aws_errors`).
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from kfm_pipelines.aws.byte_counters import traffic
from kfm_pipelines.errors import SettingsInvalid

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from botocore.config import Config
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

# One more try for a dropped connection. Longer waits are the retry clock's: nothing sleeps in a tick or a run.
ATTEMPTS = 2
CONNECT_SECONDS = 3
READ_SECONDS = 30
# How long one call may take: boto waits up to 1, 2, 4, … seconds between attempts, 20 at most.
MAX_CALL_SECONDS = ATTEMPTS * (CONNECT_SECONDS + READ_SECONDS) + sum(min(2**wait, 20) for wait in range(ATTEMPTS - 1))


@cache
def s3_client() -> "S3Client":
    import boto3

    with _translate_settings_errors():
        client = boto3.Session().client("s3", config=_config())
    client.meta.events.register("before-send.s3", _count_request)
    client.meta.events.register("response-received.s3", _count_response)
    return client


@cache
def sqs_client() -> "SQSClient":
    import boto3

    with _translate_settings_errors():
        return boto3.Session().client("sqs", config=_config())


@cache
def sns_client() -> "SNSClient":
    import boto3

    with _translate_settings_errors():
        return boto3.Session().client("sns", config=_config())


@cache
def secrets_client() -> "SecretsManagerClient":
    import boto3

    # botocore writes every answer to its debug log, and an answer of this service is a secret.
    logging.getLogger("botocore.parsers").addFilter(lambda record: record.levelno > logging.DEBUG)
    with _translate_settings_errors():
        return boto3.Session().client("secretsmanager", config=_config())


def _config() -> "Config":
    from botocore.config import Config

    return Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        # An emulator has one address; bucket.127.0.0.1 is none.
        s3={"addressing_style": "path" if os.environ.get("AWS_ENDPOINT_URL") else "auto"},
    )


def _count_request(request: "AWSPreparedRequest", **_: object) -> None:
    """Of every try. What a hook here gives back would be taken for the answer, so it is nothing."""
    traffic.add(sent=_content_length(request.headers.items()))


def _count_response(response_dict: Mapping[str, Any] | None = None, **_: object) -> None:
    """A body that is read by and by counts as long as S3 says it is; a try without an answer has none."""
    if response_dict is not None:
        body = response_dict["body"]
        traffic.add(
            received=len(body) if isinstance(body, bytes) else _content_length(response_dict["headers"].items())
        )


def _content_length(headers: Iterable[tuple[str, Any]]) -> int:
    """What a body has by its own account, 0 when it says nothing."""
    stated = {name.lower(): value for name, value in headers}
    return int(stated.get("content-length") or stated.get("x-amz-decoded-content-length") or 0)


@contextmanager
def _translate_settings_errors() -> Iterator[None]:
    """No region, an unknown profile or a malformed endpoint is known before the first call."""
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except (BotoCoreError, ValueError) as error:
        raise SettingsInvalid(f"the AWS settings do not work: {' '.join(str(error).split())}") from error

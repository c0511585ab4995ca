"""AWS errors turned into ours, in one place."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm_pipelines.errors import KfmError, ObjectForbidden, ObjectMissing, ServiceUnavailable, Terminal

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_MISSING = frozenset({"NoSuchKey", "NoSuchVersion", "NoSuchBucket", "404", "NotFound"})
# Credentials that run out are renewed by whoever gave them; the work is not to blame.
_PASSING = frozenset({"SlowDown", "RequestTimeout", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
                      "RequestTimeTooSkewed"})  # fmt: skip
_FORBIDDEN = frozenset({"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch"})


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Run an AWS call; what goes wrong comes out as one of our errors, saying what was being done."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _from_answer(doing, error) from error
    except BotoCoreError as error:
        raise _from_client(doing, error) from error


def code_of(error: "ClientError") -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _from_answer(doing: str, error: "ClientError") -> KfmError:
    code = code_of(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _MISSING:
        return ObjectMissing(f"{doing}: there is no such object or bucket ({code})")
    if code in _FORBIDDEN:
        return ObjectForbidden(f"{doing}: access was refused ({code})")
    if status >= 500 or status in (408, 429) or "Throttl" in code or code in _PASSING:
        return ServiceUnavailable(f"{doing}: the service answered {code or status}")
    return Terminal(f"{doing}: {code or status}")


def _from_client(doing: str, error: "BotoCoreError") -> KfmError:
    from botocore.exceptions import EndpointConnectionError, HTTPClientError, NoCredentialsError, NoRegionError

    if isinstance(error, NoCredentialsError | NoRegionError):
        return ObjectForbidden(f"{doing}: {error}")
    if isinstance(error, HTTPClientError | EndpointConnectionError):
        return ServiceUnavailable(f"{doing}: the service cannot be reached")
    return ServiceUnavailable(f"{doing}: {type(error).__name__}")

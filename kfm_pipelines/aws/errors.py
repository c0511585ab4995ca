"""Translates AWS errors into the pipeline's own."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm_pipelines.errors import KfmError, ObjectForbidden, ObjectMissing, ServiceUnavailable, Terminal, Unreachable

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_MISSING_CODES = frozenset({"NoSuchKey", "NoSuchVersion", "NoSuchBucket", "404", "NotFound"})
# Expired credentials get renewed, and bytes damaged in transit are intact at the source: retrying helps.
_TRANSIENT_CODES = frozenset({"SlowDown", "RequestTimeout", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
                      "RequestTimeTooSkewed", "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody",
                      "OperationAborted"})  # fmt: skip
_FORBIDDEN_CODES = frozenset({"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
# obstore has an error class for some statuses only, and for no code.
_ANSWER = re.compile(r"Server returned non-2xx status code: (\d+)[^<]*(?:.*?<Code>(\w+)</Code>)?", re.DOTALL)
_MESSAGES: Mapping[type[KfmError], str] = {
    ObjectMissing: "there is no such object or bucket ({})",
    ObjectForbidden: "access was refused ({})",
    ServiceUnavailable: "the service answered {}",
}


@contextmanager
def translate_aws_errors(operation: str) -> Iterator[None]:
    """Raises the matching KfmError, prefixed with the operation, when the AWS call inside fails."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _from_client_error(operation, error) from error
    except BotoCoreError as error:
        raise _from_botocore_error(operation, error) from error


@contextmanager
def translate_obstore_errors(operation: str) -> Iterator[None]:
    """Raises the matching KfmError, prefixed with the operation, when the obstore call inside fails."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        raise _from_obstore_error(operation, error) from error


def error_code(error: "ClientError") -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def error_class_for_status(status: int) -> type[KfmError]:
    """The error for an HTTP status when the error code says nothing more exact."""
    if status >= 500 or status in (408, 429):
        return ServiceUnavailable
    if status in (401, 403):
        return ObjectForbidden
    if status in (404, 410):
        return ObjectMissing
    return Terminal


def _from_client_error(operation: str, error: "ClientError") -> KfmError:
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return _from_answer(operation, error_code(error), status)


def _from_obstore_error(operation: str, error: Exception) -> KfmError:
    message = str(error).partition("\n\nDebug source:")[0]
    if answer := _ANSWER.search(message):
        return _from_answer(operation, answer[2] or "", int(answer[1]))
    if "error sending request" in message:
        return Unreachable(f"{operation}: the service cannot be reached")
    return ServiceUnavailable(f"{operation}: {' '.join(message.split())}")


def _from_answer(operation: str, code: str, status: int) -> KfmError:
    named = _error_class_for_code(code) or error_class_for_status(status)
    return named(f"{operation}: {_MESSAGES.get(named, '{}').format(code or status)}")


def _error_class_for_code(code: str) -> type[KfmError] | None:
    """Some codes come with a misleading status: a throttled call is a 400, a wrong clock a 403."""
    if code in _MISSING_CODES:
        return ObjectMissing
    if code in _FORBIDDEN_CODES:
        return ObjectForbidden
    if code in _TRANSIENT_CODES or "Throttl" in code:
        return ServiceUnavailable
    return None


def _from_botocore_error(operation: str, error: "BotoCoreError") -> KfmError:
    from botocore import exceptions

    if isinstance(error, exceptions.NoCredentialsError | exceptions.NoRegionError):
        return ObjectForbidden(f"{operation}: {error}")
    if isinstance(error, exceptions.ParamValidationError):
        return Terminal(f"{operation}: {' '.join(str(error).split())}")
    if isinstance(error, exceptions.HTTPClientError | exceptions.EndpointConnectionError):
        return Unreachable(f"{operation}: the service cannot be reached")
    return ServiceUnavailable(f"{operation}: {type(error).__name__}")

"""Objects in S3 through obstore, which takes a fraction of boto3's processor time for a request.

A bucket is opened when it is first used: obstore starts threads, which a process forked later would not have.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from random import SystemRandom
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from kfm_pipelines.aws.clients import ATTEMPTS, CONNECT_SECONDS, READ_SECONDS, new_session, s3_client, traffic
from kfm_pipelines.aws.errors import translate_aws_errors, translate_obstore_errors
from kfm_pipelines.errors import ObjectForbidden, ServiceUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from obstore import PutMode
    from obstore.store import S3Store

T = TypeVar("T")
Accept = Callable[[int, str], object]  # called with size and ETag; raises to refuse the object

LONGEST_PAUSE_SECONDS = 1.0  # before the second attempt, as with boto3
_random = SystemRandom()
# botocore renews credentials at the latest ten minutes before they expire.
_CREDENTIALS_LAST = timedelta(minutes=10)
# obstore refuses empty and dotted folders and control characters, and drops a slash at either end.
_UNNAMEABLE = re.compile(r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f]")


def is_nameable(key: str) -> bool:
    """Whether obstore can address an object with this key."""
    return _UNNAMEABLE.search(key) is None


@dataclass(frozen=True, slots=True)
class BucketAccess:
    """How a bucket is reached: in which region, if not the configured one, and whether we pay for its requests."""

    region: str | None = None
    requester_pays: bool = False


OWN_BUCKET = BucketAccess()


class Bucket:
    """A bucket at the endpoint and in the region of a boto3 client. Thread-safe."""

    def __init__(
        self,
        name: str,
        client: Callable[[], "S3Client"] = s3_client,
        *,
        read_seconds: float = READ_SECONDS,
        requester_pays: bool = False,
    ) -> None:
        self.name = name
        self._client = client
        self._read_seconds = read_seconds
        self._requester_pays = requester_pays
        self._opened = cache(self._open)
        self._lock = Lock()

    def get(self, key: str, version_id: str | None = None, accept: Accept = lambda *_: None) -> tuple[bytes, str]:
        """Returns the bytes and the ETag, without quotes; `accept` is called before the body is downloaded."""
        import obstore

        def request(store: "S3Store") -> tuple[bytes, str]:
            found = obstore.get(store, key, options={"version": version_id} if version_id else None)
            etag = _unquoted(found.meta["e_tag"])
            accept(found.meta["size"], etag)
            data = found.bytes().to_bytes()
            traffic.add(received=len(data))
            return data, etag

        return self._send("reading", key, request)

    def head(self, key: str) -> str:
        """Returns the ETag of an object."""
        return self._send("looking for", key, lambda store: _unquoted(store.head(key)["e_tag"]))

    def put(self, key: str, data: bytes, content_type: str, mode: "PutMode" = "overwrite") -> bool:
        """Returns False when the condition in `mode` does not hold or another conditional write is in progress."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def request(store: "S3Store") -> bool:
            traffic.add(sent=len(data))
            try:
                store.put(key, data, attributes={"Content-Type": content_type}, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                if mode == "overwrite":
                    raise
                return False
            return True

        return self._send("writing", key, request)

    def copy(self, source: str, target: str) -> None:
        self._send(f"copying {source} to", target, lambda store: store.copy(source, target))

    def delete(self, keys: Sequence[str]) -> None:
        if keys:
            self._send("removing", keys[0], lambda store: store.delete(keys))

    def list(self, prefix: str) -> list[str]:
        """Returns all keys with this prefix, through boto3, because some may not be nameable."""
        with translate_aws_errors(f"listing s3://{self.name}/{prefix}"):
            pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
            return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def _send(self, verb: str, key: str, request: Callable[["S3Store"], T]) -> T:
        """Sends a request, and once more if that may help. obstore itself would not repeat conditional writes."""
        operation = f"{verb} s3://{self.name}/{key}"
        with self._lock:  # otherwise each thread of the first call would open it
            store = self._opened(self._client())
        for _ in range(ATTEMPTS - 1):
            with suppress(ServiceUnavailable), translate_obstore_errors(operation):
                return request(store)
            time.sleep(_random.uniform(0, LONGEST_PAUSE_SECONDS))
        with translate_obstore_errors(operation):
            return request(store)

    def _open(self, client: "S3Client") -> "S3Store":
        from obstore.auth.boto3 import Boto3CredentialProvider
        from obstore.store import S3Store

        endpoint = client.meta.endpoint_url
        virtual = ".amazonaws.com" in endpoint and "." not in self.name  # no certificate covers more dots
        address = endpoint.replace("://", f"://{self.name}.", 1) if virtual else endpoint
        session = new_session()
        if session.get_credentials() is None:
            raise ObjectForbidden(f"s3://{self.name}: there are no AWS credentials")
        return S3Store(
            self.name,
            region=client.meta.region_name,
            endpoint=address,
            aws_endpoint_url_s3=address,  # otherwise the variable of this name would count
            virtual_hosted_style_request=virtual,
            checksum_algorithm="SHA256",  # S3 refuses bytes that do not match it, damaged on their way
            client_options={
                "allow_http": endpoint.startswith("http:"),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "read_timeout": timedelta(seconds=self._read_seconds),
                "timeout": timedelta(hours=1),  # of a whole request with its body
            },
            retry_config={"max_retries": 0},
            request_payer=self._requester_pays,
            credential_provider=Boto3CredentialProvider(session, ttl=_CREDENTIALS_LAST),
        )


@cache
def _bucket(name: str, access: BucketAccess) -> Bucket:
    client = partial(s3_client, access.region) if access.region else s3_client
    return Bucket(name, client, requester_pays=access.requester_pays)


def get_object(
    bucket: str, key: str, version_id: str | None, accept: Accept, access: BucketAccess = OWN_BUCKET
) -> tuple[bytes, str]:
    """Returns the bytes and the ETag of an object of any bucket; `accept` is called before the body is downloaded."""
    if is_nameable(key):
        return _bucket(bucket, access).get(key, version_id, accept)
    with translate_aws_errors(f"reading s3://{bucket}/{key}"):
        options = {**({"VersionId": version_id} if version_id else {}), **_payer(access)}
        answer = s3_client(access.region).get_object(Bucket=bucket, Key=key, **options)  # type: ignore[arg-type]
        etag = _unquoted(answer["ETag"])
        accept(answer["ContentLength"], etag)
        return answer["Body"].read(), etag


def head_object(bucket: str, key: str, access: BucketAccess = OWN_BUCKET) -> str:
    """Returns the ETag of an object of any bucket."""
    if is_nameable(key):
        return _bucket(bucket, access).head(key)
    with translate_aws_errors(f"looking for s3://{bucket}/{key}"):
        answer = s3_client(access.region).head_object(Bucket=bucket, Key=key, **_payer(access))  # type: ignore[arg-type]
        return _unquoted(answer["ETag"])


def _payer(access: BucketAccess) -> dict[str, str]:
    return {"RequestPayer": "requester"} if access.requester_pays else {}


def _unquoted(etag: str | None) -> str:
    return (etag or "").strip('"')

"""A store in an S3 bucket, built on conditional writes.

When the answer to a successful write is lost, boto3 sends the write again. So after a failed condition we look at the
bytes: if they are the same, they come from our own first attempt, or might as well.
"""

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from random import SystemRandom

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import error_code, translate_aws_errors
from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, PointerMoved, ServiceUnavailable

_NOT_FOUND = frozenset({"NoSuchKey", "404", "NotFound"})
# Something else is there, or nothing where something was.
_PRECONDITION_FAILED = frozenset({"PreconditionFailed", "412"}) | _NOT_FOUND
# Another conditional write of the same name is in progress; either may win.
_CONFLICT = frozenset({"ConditionalRequestConflict", "OperationAborted", "409"})

# A conflicting write ends within a fraction of a second. Longer waits are up to the retry policy.
TRIES = 6
SHORTEST_PAUSE_SECONDS = 0.05
_random = SystemRandom()

# These let a browser display a page instead of saving it.
_CONTENT_TYPES = {".html": "text/html", ".json": "application/json", ".parquet": "application/vnd.apache.parquet"}


class S3Store:
    """Bytes under one prefix of one bucket. The bucket policy must restrict `work/restricted/`."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, path: str) -> bytes:
        data, _ = self._get(path)
        return data

    def digest(self, path: str) -> str | None:
        try:
            return hashlib.sha256(self.read(path)).hexdigest()
        except ObjectMissing:
            return None

    def exists(self, path: str) -> bool:
        from botocore.exceptions import ClientError

        with translate_aws_errors(f"looking for {path}"):
            try:
                s3_client().head_object(Bucket=self._bucket, Key=self._name(path))
            except ClientError as error:
                if error_code(error) in _NOT_FOUND:
                    return False
                raise
        return True

    def write(self, path: str, data: bytes) -> None:
        with translate_aws_errors(f"writing {path}"):
            self._put(path, data)

    def create(self, path: str, data: bytes) -> None:
        for _ in _tries(path):
            if self._put_if(path, data, None):
                return
            present = self.digest(path)
            if present == hashlib.sha256(data).hexdigest():
                return
            if present is not None:
                raise IntegrityBroken(f"{path} contains bytes that do not match its name")

    def replace(self, source: str, target: str) -> None:
        with translate_aws_errors(f"copying {source} to {target}"):
            s3_client().copy_object(
                Bucket=self._bucket,
                Key=self._name(target),
                CopySource={"Bucket": self._bucket, "Key": self._name(source)},
            )

    def swap(self, path: str, data: bytes, expected: str | None) -> None:
        for attempt in _tries(path):
            present, etag = None, None
            if attempt or expected is not None:  # else the conditional write shows whether an object exists
                with suppress(ObjectMissing):
                    found, etag = self._get(path)
                    present = hashlib.sha256(found).hexdigest()
            if present == hashlib.sha256(data).hexdigest():
                return
            if present != expected:
                raise PointerMoved(f"{path} was changed by another writer in the meantime")
            if self._put_if(path, data, etag):
                return

    def remove(self, prefix: str) -> None:
        # One by one: the prefix is usually one key's work folder with a handful of objects.
        for path in self.paths(prefix):
            self.discard(path)

    def discard(self, path: str) -> None:
        with translate_aws_errors(f"removing {path}"):
            s3_client().delete_object(Bucket=self._bucket, Key=self._name(path))

    def paths(self, prefix: str) -> list[str]:
        with translate_aws_errors(f"listing {prefix}"):
            pages = (
                s3_client()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._bucket, Prefix=self._name(prefix.rstrip("/") + "/"))
            )
            names = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return sorted(name.removeprefix(self._prefix) for name in names)

    def foreign_entries(self, prefix: str) -> list[str]:
        return []  # a bucket contains nothing but objects

    def _put_if(self, path: str, data: bytes, etag: str | None) -> bool:
        """Writes if the object has this ETag, or does not exist (None). False: another write may have won."""
        from botocore.exceptions import ClientError

        with translate_aws_errors(f"writing {path}"):
            try:
                self._put(path, data, **({"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}))
            except ClientError as error:
                if error_code(error) in _PRECONDITION_FAILED | _CONFLICT:
                    return False
                raise
        return True

    def _put(self, path: str, data: bytes, **condition: str) -> None:
        # S3 refuses bytes that do not match the checksum, so an upload damaged on its way fails.
        s3_client().put_object(
            Bucket=self._bucket,
            Key=self._name(path),
            Body=data,
            ContentType=_CONTENT_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream"),
            ChecksumSHA256=checksum(data),
            **condition,  # type: ignore[arg-type]
        )

    def _get(self, path: str) -> tuple[bytes, str]:
        from botocore.exceptions import ClientError

        with translate_aws_errors(f"reading {path}"):
            try:
                answer = s3_client().get_object(Bucket=self._bucket, Key=self._name(path))
                return answer["Body"].read(), answer["ETag"]
            except ClientError as error:
                if error_code(error) in _NOT_FOUND:
                    raise ObjectMissing(f"{path} is not in the store {self.url}") from None
                raise

    def _name(self, path: str) -> str:
        return self._prefix + path


def checksum(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _tries(path: str) -> Iterator[int]:
    """Yields attempts with growing random pauses, so that two writers do not keep colliding, then gives up."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(_random.uniform(0.5, 1.0) * SHORTEST_PAUSE_SECONDS * 2**attempt)
        yield attempt
    raise ServiceUnavailable(f"writing {path}: gave up after {TRIES} conflicting writes in a row")

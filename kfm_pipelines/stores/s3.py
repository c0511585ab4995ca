"""A store in an S3 bucket, by conditional writes."""

import hashlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, PointerMoved
from kfm_pipelines.messaging.aws_errors import code_of, translated
from kfm_pipelines.messaging.clients import s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_GONE = frozenset({"NoSuchKey", "404", "NotFound"})
# 412: the condition does not hold. 409: another conditional write is under way; the caller comes back later.
_MOVED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})

_KINDS = {".html": "text/html", ".json": "application/json", ".parquet": "application/vnd.apache.parquet"}


class S3Store:
    """Bytes under one prefix of one bucket. Who may read `work/restricted/` is the bucket policy's to say."""

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

        with translated(f"looking for {path}"):
            try:
                self._client.head_object(Bucket=self._bucket, Key=self._name(path))
            except ClientError as error:
                if code_of(error) in _GONE:
                    return False
                raise
        return True

    def write(self, path: str, data: bytes) -> None:
        with translated(f"writing {path}"):
            self._client.put_object(
                Bucket=self._bucket, Key=self._name(path), Body=data, ContentType=content_type(path)
            )

    def keep(self, source: str, target: str) -> None:
        there = self.digest(target)
        if there is None:
            self.replace(source, target)
        elif there != self.digest(source):
            raise IntegrityBroken(f"{target} holds other bytes than its name says")

    def replace(self, source: str, target: str) -> None:
        with translated(f"copying {source} to {target}"):
            self._client.copy_object(
                Bucket=self._bucket,
                Key=self._name(target),
                CopySource={"Bucket": self._bucket, "Key": self._name(source)},
            )

    def swap(self, source: str, target: str, expected: str | None) -> None:
        new = self.read(source)
        present, etag = self._digest_and_etag(target)
        if present == hashlib.sha256(new).hexdigest():
            return
        if present != expected:
            raise PointerMoved(f"{target} was changed by somebody else in the meantime")
        self._put_if_unchanged(target, new, etag)

    def remove(self, prefix: str) -> None:
        # One by one: a prefix here is one key's work folder, a handful of objects.
        for path in self.paths(prefix):
            with translated(f"removing {path}"):
                self._client.delete_object(Bucket=self._bucket, Key=self._name(path))

    def discard(self, path: str) -> None:
        with translated(f"removing {path}"):
            self._client.delete_object(Bucket=self._bucket, Key=self._name(path))

    def paths(self, prefix: str) -> list[str]:
        with translated(f"listing {prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._name(prefix.rstrip("/") + "/")
            )
            names = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return sorted(name.removeprefix(self._prefix) for name in names)

    def _put_if_unchanged(self, path: str, data: bytes, etag: str | None) -> None:
        from botocore.exceptions import ClientError

        with translated(f"writing {path}"):
            try:
                kind = content_type(path)
                name = self._name(path)
                if etag is None:
                    self._client.put_object(Bucket=self._bucket, Key=name, Body=data, ContentType=kind, IfNoneMatch="*")
                else:
                    self._client.put_object(Bucket=self._bucket, Key=name, Body=data, ContentType=kind, IfMatch=etag)
            except ClientError as error:
                # A retry inside boto3 after a lost answer meets its own first write: that is success.
                if code_of(error) in _MOVED and self.digest(path) == hashlib.sha256(data).hexdigest():
                    return
                if code_of(error) in _MOVED:
                    raise PointerMoved(f"{path} was changed by somebody else in the meantime") from None
                raise

    def _digest_and_etag(self, path: str) -> tuple[str | None, str | None]:
        try:
            data, etag = self._get(path)
        except ObjectMissing:
            return None, None
        return hashlib.sha256(data).hexdigest(), etag

    def _get(self, path: str) -> tuple[bytes, str]:
        from botocore.exceptions import ClientError

        with translated(f"reading {path}"):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._name(path))
                return answer["Body"].read(), answer["ETag"]
            except ClientError as error:
                if code_of(error) in _GONE:
                    raise ObjectMissing(f"{path} is not in the store {self.url}") from None
                raise

    def _name(self, path: str) -> str:
        return self._prefix + path

    @property
    def _client(self) -> "S3Client":
        return s3_client()


def content_type(path: str) -> str:
    """So that a browser shows a page instead of saving it."""
    return _KINDS.get(PurePosixPath(path).suffix, "application/octet-stream")

"""A store in an S3 bucket, built on conditional writes.

When the answer to a successful write is lost, the write is sent again. So after a failed condition we look at the
bytes: if they are the same, they come from our own first attempt, or might as well.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from random import SystemRandom
from typing import TYPE_CHECKING, TypeVar

from kfm_pipelines.aws.objects import Bucket, is_nameable
from kfm_pipelines.errors import IntegrityBroken, KfmError, ObjectMissing, PointerMoved, ServiceUnavailable
from kfm_pipelines.stores.layout import Failures, Store, Swap, by_path, read_if_exists

if TYPE_CHECKING:
    from obstore import PutMode

T = TypeVar("T")

# Requests of one call that are under way at a time.
CONCURRENT_REQUESTS = 32
# A conflicting write ends within a fraction of a second. Longer waits are up to the retry policy.
TRIES = 6
SHORTEST_PAUSE_SECONDS = 0.05
_random = SystemRandom()

# These let a browser display a page instead of saving it.
_CONTENT_TYPES = {
    ".html": "text/html",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".tif": "image/tiff",
}


class S3Store(Store):
    """Bytes under one prefix of one bucket. The bucket policy must restrict `work/restricted/`."""

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    @property
    def url(self) -> str:
        return f"s3://{self._bucket.name}/{self._prefix}".rstrip("/")

    def read(self, path: str) -> bytes:
        data, _ = self._get(path)
        return data

    def read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        found = _at_once(partial(read_if_exists, self), paths)
        return {path: data for path, data in found.items() if data is not None}

    def digest(self, path: str) -> str | None:
        data = read_if_exists(self, path)
        return None if data is None else hashlib.sha256(data).hexdigest()

    def exists_all(self, paths: Iterable[str]) -> set[str]:
        def exists(path: str) -> bool:
            try:
                self._bucket.head(self._name(path))
            except ObjectMissing:
                return False
            return True

        return {path for path, found in _at_once(exists, paths).items() if found}

    def write_all(self, files: Mapping[str, bytes]) -> Failures:
        return _failures_of(lambda path: self._put(path, files[path]), files)

    def create_all(self, files: Mapping[str, bytes]) -> Failures:
        return _failures_of(lambda path: self._create(path, files[path]), files)

    def replace_all(self, sources: Mapping[str, str]) -> Failures:
        return _failures_of(lambda path: self._bucket.copy(self._name(sources[path]), self._name(path)), sources)

    def swap_all(self, swaps: Sequence[Swap]) -> Failures:
        wanted = by_path(swaps)
        return _failures_of(lambda path: self._swap(wanted[path]), wanted)

    def remove(self, prefix: str) -> None:
        self._bucket.delete([self._name(path) for path in self.paths(prefix)])

    def discard(self, path: str) -> None:
        self._bucket.delete([self._name(path)])

    def paths(self, prefix: str) -> list[str]:
        return [path for path in self._list(prefix) if is_nameable(path)]

    def foreign_entries(self, prefix: str) -> list[str]:
        return [path for path in self._list(prefix) if not is_nameable(path)]

    def _create(self, path: str, data: bytes) -> None:
        for _ in _tries(path):
            if self._put(path, data, "create"):
                return
            present = self.digest(path)
            if present == hashlib.sha256(data).hexdigest():
                return
            if present is not None:
                raise IntegrityBroken(f"{path} contains bytes that do not match its name")

    def _swap(self, swap: Swap) -> None:
        for attempt in _tries(swap.path):
            present, etag = None, None
            if attempt or swap.expected is not None:  # else the conditional write shows whether an object exists
                with suppress(ObjectMissing):
                    found, etag = self._get(swap.path)
                    present = hashlib.sha256(found).hexdigest()
            if present == hashlib.sha256(swap.data).hexdigest():
                return
            if present != swap.expected:
                raise PointerMoved(f"{swap.path} was changed by another writer in the meantime")
            if self._put(swap.path, swap.data, "create" if etag is None else {"e_tag": f'"{etag}"'}):
                return

    def _get(self, path: str) -> tuple[bytes, str]:
        try:
            return self._bucket.get(self._name(path))
        except ObjectMissing:
            raise ObjectMissing(f"{path} is not in the store {self.url}") from None

    def _list(self, prefix: str) -> list[str]:
        names = self._bucket.list(self._name(prefix.rstrip("/") + "/"))
        return sorted(name.removeprefix(self._prefix) for name in names)

    def _name(self, path: str) -> str:
        return self._prefix + path

    def _put(self, path: str, data: bytes, mode: "PutMode" = "overwrite") -> bool:
        content_type = _CONTENT_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream")
        return self._bucket.put(self._name(path), data, content_type, mode)


def _at_once(do: Callable[[str], T], paths: Iterable[str]) -> dict[str, T]:
    """Returns the result for each path. Threads cost less processor time than obstore's coroutines, and new ones for
    each call survive no fork."""
    wanted = list(paths)
    if len(wanted) < 2:
        return {path: do(path) for path in wanted}
    with ThreadPoolExecutor(min(len(wanted), CONCURRENT_REQUESTS)) as pool:
        return dict(zip(wanted, pool.map(do, wanted), strict=True))


def _failures_of(do: Callable[[str], object], paths: Iterable[str]) -> Failures:
    def attempt(path: str) -> KfmError | None:
        try:
            do(path)
        except KfmError as error:
            return error
        return None

    return {path: error for path, error in _at_once(attempt, paths).items() if error is not None}


def _tries(path: str) -> Iterator[int]:
    """Yields attempts with growing random pauses, so that two writers do not keep colliding, then gives up."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(_random.uniform(0.5, 1.0) * SHORTEST_PAUSE_SECONDS * 2**attempt)
        yield attempt
    raise ServiceUnavailable(f"writing {path}: gave up after {TRIES} conflicting writes in a row")

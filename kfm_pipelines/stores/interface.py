"""What a store must be able to do, so that everything above it is the same on files and on S3."""

from typing import Protocol
from urllib.parse import unquote, urlsplit

from kfm_pipelines.errors import ObjectMissing


class Store(Protocol):
    """Paths are relative, with forward slashes. Every call is all or nothing for a reader."""

    @property
    def url(self) -> str: ...

    def read(self, path: str) -> bytes:
        """The bytes at `path`; ObjectMissing when there are none."""

    def digest(self, path: str) -> str | None:
        """sha256 of the bytes at `path`, or None when there are none."""

    def exists(self, path: str) -> bool: ...

    def write(self, path: str, data: bytes) -> None:
        """Put bytes at `path`. The caller is the only writer of that path at the time."""

    def copy_once(self, source: str, target: str) -> None:
        """Give the bytes at `source` the content-addressed name `target`, once and for ever."""

    def replace(self, source: str, target: str) -> None:
        """Let `target` have the bytes of `source`."""

    def swap(self, source: str, target: str, expected: str | None) -> None:
        """Let `target` have the bytes of `source` if it still has the digest `expected` (None: is not there).
        Succeeds as well when `target` has them already; PointerMoved otherwise."""

    def remove(self, prefix: str) -> None:
        """Remove everything under the folder `prefix`; nothing there is fine."""

    def discard(self, path: str) -> None:
        """Take the bytes at `path` back; nothing there is fine."""

    def paths(self, prefix: str) -> list[str]:
        """Every path under the folder `prefix`, sorted."""

    def foreign_entries(self, prefix: str) -> list[str]:
        """Of what is under the folder `prefix`, all that no store has put there: links, pipes, devices; sorted."""


def open_store(url: str) -> Store:
    """The store at `file:///folder` or `s3://bucket/prefix`."""
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from kfm_pipelines.stores.s3 import S3Store

        return S3Store(parts.netloc, parts.path.strip("/"))
    from kfm_pipelines.stores.files import FileStore

    return FileStore(unquote(parts.path))


def read_if_exists(store: Store, path: str) -> bytes | None:
    """None when there are no bytes at `path`, or none any longer."""
    try:
        return store.read(path)
    except ObjectMissing:
        return None

"""A file store whose disk is full, in one tier."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kfm_pipelines.stores.files import FileStore


@contextmanager
def full_disk(tier: str) -> Iterator[None]:
    write = FileStore.write

    def refuse(store: FileStore, path: str, data: bytes) -> None:
        if tier in path:
            raise OSError(28, "No space left on device")
        write(store, path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "write", refuse)
        yield

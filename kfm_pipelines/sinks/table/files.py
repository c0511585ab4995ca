"""The files of Iceberg tables in our store, so that they are as durable, and reached with the same credentials, as
everything else that is published. pyiceberg loads the class by its name."""

import io
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from kfm_pipelines.errors import ObjectMissing
from kfm_pipelines.stores import Store, open_store

STORE_URL = "kfm.store-url"
ROOT = "kfm.root"  # what the locations of all tables begin with


class StoreFiles(FileIO):
    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(dict(properties))
        self._store = _store(properties[STORE_URL])
        self._root = properties[ROOT] + "/"

    def new_input(self, location: str) -> InputFile:
        return _File(self._store, self._path(location), location)

    def new_output(self, location: str) -> OutputFile:
        return _File(self._store, self._path(location), location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._store.discard(self._path(location if isinstance(location, str) else location.location))

    def _path(self, location: str) -> str:
        if not location.startswith(self._root):
            raise ValueError(f"{location} is not in the store of this pipeline")
        return location.removeprefix(self._root)


@cache
def _store(url: str) -> Store:
    return open_store(url)


class _File(InputFile, OutputFile):
    def __init__(self, store: Store, path: str, location: str) -> None:
        super().__init__(location)
        self._store = store
        self._path = path
        self._size: int | None = None

    def __len__(self) -> int:
        return len(self._read()) if self._size is None else self._size

    def exists(self) -> bool:
        return self._store.exists(self._path)

    def open(self, seekable: bool = True) -> InputStream:
        stream: InputStream = pa.BufferReader(self._read())
        return stream

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return _Upload(self)

    def to_input_file(self) -> InputFile:
        return self

    def write(self, data: bytes) -> None:
        self._store.write(self._path, data)
        self._size = len(data)

    def _read(self) -> bytes:
        try:
            return self._store.read(self._path)
        except ObjectMissing as error:
            raise FileNotFoundError(self.location) from error


class _Upload(io.BytesIO):
    """Writes the file when it is closed, and nothing if writing it was not finished."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._file.write(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

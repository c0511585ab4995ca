"""A store whose work folders are in this process, because a run is one process: hand-offs and staged releases cost no
request and no sync, and end with the process however it ends. What somebody else has to read is kept in the store.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, TYPE_CHECKING

from kfm_pipelines.data_files import TABLE_ALONE, Attachments, DataFile
from kfm_pipelines.declarations.identity import box_from
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.stores.layout import Failures, Layout, Store, Swap, raise_failure, work_folder

if TYPE_CHECKING:
    import pyarrow as pa

# Larger files are in one temporary file without a name, below TMPDIR.
IN_MEMORY_BYTES = 1 << 18
Place = tuple[int, int]  # offset and length in the temporary file
INDEX = "attachments.json"
Locate = Callable[[str], str]  # from the name of a file to its path


class WorkStore(Store):
    """Files of work folders are here until they are forgotten; everything else is in the store behind."""

    def __init__(self, durable: Store) -> None:
        self.durable = durable
        self._files: dict[str, bytes | Place | Callable[[], bytes]] = {}
        self._tables: dict[str, pa.Table] = {}  # of some of the files
        self._shared: set[str] = set()
        self._lock = Lock()
        self._spill: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return self.durable.url

    def read(self, path: str) -> bytes:
        local = self.read_local(path)
        return self.durable.read(path) if local is None else local

    def read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        local = {path: self.read_local(path) for path in paths}
        found = self.durable.read_all(path for path, data in local.items() if data is None)
        return found | {path: data for path, data in local.items() if data is not None}

    def read_local(self, path: str) -> bytes | None:
        """Returns the bytes if this process holds them."""
        found = self._files.get(path)
        if callable(found):
            found = self._files[path] = found()
        if self._spill is None or not isinstance(found, tuple):
            return found  # type: ignore[return-value]  # there is no place without a file
        return os.pread(self._spill.fileno(), found[1], found[0])

    def read_work(self, path: str) -> bytes:
        """Returns what an earlier stage left; a key whose table is gone is computed again."""
        local = self.read_local(path)
        if local is None:
            raise ServiceUnavailable(f"{path} ended with the process that made it")
        return local

    def digest(self, path: str) -> str | None:
        local = self.read_local(path)
        return self.durable.digest(path) if local is None else hashlib.sha256(local).hexdigest()

    def exists_all(self, paths: Iterable[str]) -> set[str]:
        wanted = set(paths)
        return (wanted & self._files.keys()) | self.durable.exists_all(wanted - self._files.keys())

    def write_all(self, files: Mapping[str, bytes]) -> Failures:
        failures = self.durable.write_all({path: data for path, data in files.items() if work_folder(path) is None})
        for path, data in files.items():
            if work_folder(path) is not None:
                self._tables.pop(path, None)
                try:
                    self._files[path] = data if len(data) <= IN_MEMORY_BYTES else self._write_to_disk(data)
                except ServiceUnavailable as error:
                    failures[path] = error
        return failures

    def write_table(self, path: str, table: "pa.Table", write: "Callable[[pa.Table], bytes]") -> None:
        """Writes a table to a file of a work folder; a small one only when somebody reads the file."""
        if table.nbytes > IN_MEMORY_BYTES:
            self.write(path, write(table))
        else:
            self._files[path], self._tables[path] = partial(write, table), table

    def read_table(self, path: str, read: "Callable[[bytes], pa.Table]") -> "pa.Table":
        """Returns the table that `read` finds in a file of a work folder; of a small one, without reading it again."""
        table = self._tables.get(path)
        if table is None:
            table = read(self.read_work(path))
            if table.nbytes <= IN_MEMORY_BYTES:
                self._tables[path] = table
        return table

    def keep(self, path: str) -> None:
        """Writes a file of a work folder to the store, for a reader outside this process."""
        self.durable.write(path, self.read_work(path))

    def move(self, source: str, target: str) -> None:
        """Gives a file of a work folder another name."""
        self._files[target] = self._files.pop(source)
        if source in self._tables:
            self._tables[target] = self._tables.pop(source)

    def forget_work(self, layout: Layout, keys: Iterable[str]) -> None:
        """Forgets this process's files of the keys."""
        folders = {folder for key in keys for folder in layout.work_folders(key)}
        self._forget([path for path in self._files if path.rsplit("/", 2)[0] in folders])

    def create_all(self, files: Mapping[str, bytes]) -> Failures:
        return self.durable.create_all(files)

    def create_shared(self, path: str, data: bytes) -> None:
        raise_failure(self.create_shared_all({path: data}))

    def create_shared_all(self, files: Mapping[str, bytes]) -> Failures:
        """Creates files that many releases name, unless they were there since the last `recheck_shared`."""
        unseen = files.keys() - self._shared
        missing = unseen - self.durable.exists_all(unseen)
        failures = self.durable.create_all({path: files[path] for path in missing})
        self._shared |= files.keys() - failures.keys()
        return failures

    def recheck_shared(self) -> None:
        """Call at the beginning of a run: the store may have been emptied or restored since the last one."""
        self._shared.clear()

    def replace_all(self, sources: Mapping[str, str]) -> Failures:
        return self.durable.replace_all(sources)

    def swap_all(self, swaps: Sequence[Swap]) -> Failures:
        return self.durable.swap_all(swaps)

    def remove(self, prefix: str) -> None:
        self._forget(self._under(prefix))
        self.durable.remove(prefix)

    def discard(self, path: str) -> None:
        self._forget([path])
        self._shared.discard(path)
        self.durable.discard(path)

    def paths(self, prefix: str) -> list[str]:
        return sorted({*self._under(prefix), *self.durable.paths(prefix)})

    def foreign_entries(self, prefix: str) -> list[str]:
        return self.durable.foreign_entries(prefix)

    def _under(self, prefix: str) -> list[str]:
        return [path for path in self._files if path.startswith(f"{prefix.rstrip('/')}/")]

    def _write_to_disk(self, data: bytes) -> Place:
        with self._lock:
            try:
                self._spill = self._spill or TemporaryFile()  # noqa: SIM115 - as long as this process
                offset = self._spill.seek(0, os.SEEK_END)
                self._spill.write(data)
                self._spill.flush()
            except OSError as error:
                raise ServiceUnavailable(f"the temporary folder cannot hold a table: {error.strerror}") from error
        return offset, len(data)

    def _forget(self, paths: Iterable[str]) -> None:
        """Frees the disk when the last large file is forgotten."""
        with self._lock:
            for path in paths:
                self._files.pop(path, None)
                self._tables.pop(path, None)
            if self._spill is not None and not any(isinstance(one, tuple) for one in self._files.values()):
                self._spill.truncate(0)


def write_attachments(store: WorkStore, locate: Locate, attachments: Attachments) -> None:
    """Hands what a release has beside its table to the next stage; nothing for one that is a table alone."""
    if attachments == TABLE_ALONE:
        return
    for one in attachments.files:
        store.write(locate(one.file_name), one.data)
    described = [{name: value for name, value in asdict(one).items() if name != "data"} for one in attachments.files]
    index = {"files": described, "properties": attachments.properties, "remote": attachments.remote}
    store.write(locate(INDEX), json.dumps(index).encode())


def read_attachments(store: WorkStore, locate: Locate) -> Attachments:
    index = store.read_local(locate(INDEX))
    if index is None:
        return Attachments()
    document = json.loads(index)
    files = []
    for one in document["files"]:
        known = {**one, "roles": tuple(one["roles"]), "bbox": box_from(one["bbox"])}
        files.append(DataFile(**known, data=store.read_work(locate(f"{one['name']}{one['suffix']}"))))
    return Attachments(tuple(files), document["properties"], document["remote"])

"""A store whose work folders are in this process, because a run is one process: hand-offs and staged releases cost no
request and no sync, and end with the process however it ends. What somebody else has to read is kept in the store.
"""

import hashlib
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile

from kfm_pipelines.stores.layout import Layout, Store, work_folder

# Larger files are on disk, without a name.
IN_MEMORY_BYTES = 1 << 20


class WorkStore:
    """Files of work folders are here until they are forgotten; everything else is in the store behind."""

    def __init__(self, durable: Store) -> None:
        self.durable = durable
        self._files: dict[str, SpooledTemporaryFile[bytes]] = {}
        self._shared: set[str] = set()

    @property
    def url(self) -> str:
        return self.durable.url

    def read(self, path: str) -> bytes:
        local = self.read_local(path)
        return self.durable.read(path) if local is None else local

    def read_local(self, path: str) -> bytes | None:
        """Returns the bytes if this process holds them."""
        file = self._files.get(path)
        if file is None:
            return None
        file.seek(0)
        return file.read()

    def digest(self, path: str) -> str | None:
        local = self.read_local(path)
        return self.durable.digest(path) if local is None else hashlib.sha256(local).hexdigest()

    def exists(self, path: str) -> bool:
        return path in self._files or self.durable.exists(path)

    def write(self, path: str, data: bytes) -> None:
        if work_folder(path) is None:
            self.durable.write(path, data)
            return
        self._forget([path])
        self._files[path] = file = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115
        file.write(data)

    def keep(self, path: str) -> None:
        """Writes a file of a work folder to the store, for a reader outside this process."""
        self.durable.write(path, self.read(path))

    def forget_work(self, layout: Layout, key: str) -> None:
        """Forgets this process's files of the key."""
        folders = tuple(f"{folder}/" for folder in layout.work_folders(key))
        self._forget([path for path in self._files if path.startswith(folders)])

    def create(self, path: str, data: bytes) -> None:
        self.durable.create(path, data)

    def create_shared(self, path: str, data: bytes) -> None:
        """Creates a file that many releases name, unless it was there since the last `recheck_shared`."""
        if path not in self._shared and not self.durable.exists(path):
            self.durable.create(path, data)
        self._shared.add(path)

    def recheck_shared(self) -> None:
        """Call at the beginning of a run: the store may have been emptied or restored since the last one."""
        self._shared.clear()

    def replace(self, source: str, target: str) -> None:
        self.durable.replace(source, target)

    def swap(self, path: str, data: bytes, expected: str | None) -> None:
        self.durable.swap(path, data, expected)

    def remove(self, prefix: str) -> None:
        self._forget(self._under(prefix))
        self.durable.remove(prefix)

    def discard(self, path: str) -> None:
        self._forget([path])
        self.durable.discard(path)

    def paths(self, prefix: str) -> list[str]:
        return sorted({*self._under(prefix), *self.durable.paths(prefix)})

    def foreign_entries(self, prefix: str) -> list[str]:
        return self.durable.foreign_entries(prefix)

    def _under(self, prefix: str) -> list[str]:
        return [path for path in self._files if path.startswith(f"{prefix.rstrip('/')}/")]

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            if file := self._files.pop(path, None):
                file.close()

"""A store on a Linux file system that has hard links, atomic rename and files without a name.

A temporary file has no name, or is next to a document that its one writer will write again. So a kill at any point
leaves nothing behind for good.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, PointerMoved, ServiceUnavailable
from kfm_pipelines.stores.layout import RESTRICTED

# Not for readers of the catalog: what reviewers see, raw messages and failures.
PRIVATE = ("work", "ingest", "dlq", "quarantine")


class FileStore:
    """Bytes under one folder. Only its owner can read the private folders."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def read(self, path: str) -> bytes:
        try:
            return self._require_file(path).read_bytes()  # reading a pipe would block
        except FileNotFoundError:
            raise ObjectMissing(f"{path} is not in the store {self.url}") from None

    def digest(self, path: str) -> str | None:
        try:
            with self._resolve(path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        return self._resolve(path).is_file()

    def write(self, path: str, data: bytes) -> None:
        with _translate_os_errors(path):
            target = self._ensure_folder(path)
            partial = target.with_name(target.name + ".part")
            with partial.open("wb") as file:
                if path.startswith(f"{RESTRICTED}/"):
                    os.fchmod(file.fileno(), 0o600)  # its folders are private, but a copy's may not be
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
            _sync_folder(target.parent)

    def create(self, path: str, data: bytes) -> None:
        with _translate_os_errors(path):
            target = self._ensure_folder(path)
            try:
                _create_file(target, data)
            except FileExistsError:
                if self.digest(path) != hashlib.sha256(data).hexdigest():
                    raise IntegrityBroken(f"{path} contains bytes that do not match its name") from None
            _sync_folder(target.parent)

    def replace(self, source: str, target: str) -> None:
        # A second name for the same bytes, moved over the target in one step.
        with _translate_os_errors(target):
            final = self._ensure_folder(target)
            second = final.with_name(final.name + ".part")
            second.unlink(missing_ok=True)
            os.link(self._require_file(source), second)
            second.replace(final)
            second.unlink(missing_ok=True)  # renaming does nothing if both are the same file already
            _sync_folder(final.parent)

    def swap(self, path: str, data: bytes, expected: str | None) -> None:
        with _lock_folder(self._ensure_folder(path).parent):
            present = self.digest(path)
            if present == hashlib.sha256(data).hexdigest():
                return
            if present != expected:
                raise PointerMoved(f"{path} was changed by another writer in the meantime")
            self.write(path, data)

    def remove(self, prefix: str) -> None:
        shutil.rmtree(self._resolve(prefix), onerror=_ignore_missing)

    def discard(self, path: str) -> None:
        self._resolve(path).unlink(missing_ok=True)

    def paths(self, prefix: str) -> list[str]:
        # Another process may be clearing a folder: files that disappear meanwhile are skipped.
        found = (Path(folder, name) for folder, _, names in os.walk(self._resolve(prefix)) for name in names)
        return sorted(path.relative_to(self._root).as_posix() for path in found)

    def foreign_entries(self, prefix: str) -> list[str]:
        top = self._resolve(prefix)
        found = [Path(folder, name) for folder, below, names in os.walk(top) for name in (*below, *names)]
        odd = [path for path in (top, *found) if path.is_symlink() or not (path.is_file() or path.is_dir())]
        return sorted(path.relative_to(self._root).as_posix() for path in odd if os.path.lexists(path))

    def _resolve(self, path: str) -> Path:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise ValueError(f"{path!r} is not a path inside the store")
        return self._root.joinpath(*parts)

    def _require_file(self, path: str) -> Path:
        found = self._resolve(path)
        if not found.is_file():
            raise ObjectMissing(f"{path} is not in the store {self.url}")
        return found

    def _ensure_folder(self, path: str) -> Path:
        target = self._resolve(path)
        if not target.parent.is_dir():
            mode = 0o700 if path.split("/", 1)[0] in PRIVATE else 0o755
            # One by one: `parents=True` sets the mode of the last folder only.
            for folder in reversed([target.parent, *target.parent.parents]):
                if folder.is_relative_to(self._root) and not folder.is_dir():
                    folder.mkdir(mode=0o755 if folder == self._root else mode, parents=True, exist_ok=True)
        return target


def _ignore_missing(_function: object, _path: str, raised: tuple[Any, BaseException, Any]) -> None:
    """Continues when another process removes the same files."""
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


@contextmanager
def _translate_os_errors(path: str) -> Iterator[None]:
    """Makes a full or failing disk retryable: the work waits until it is fixed."""
    try:
        yield
    except OSError as error:
        raise ServiceUnavailable(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create_file(target: Path, data: bytes) -> None:
    """Creates a read-only file that has all its bytes before it has a name; until then it vanishes with the process."""
    descriptors = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        with os.fdopen(os.open(target.parent, os.O_TMPFILE | os.O_WRONLY, 0o444), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            # With a folder's descriptor, `os.link` follows the symbolic link that /proc has for the file.
            os.link(str(file.fileno()), target, src_dir_fd=descriptors)
    finally:
        os.close(descriptors)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

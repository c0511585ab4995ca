"""A store on a Linux file system that has hard links, atomic rename and files without a name.

A temporary file has no name, or is next to a document that its one writer will write again. So a kill at any point
leaves nothing behind for good.
"""

import ctypes
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from kfm_pipelines.errors import IntegrityBroken, KfmError, ObjectMissing, PointerMoved, ServiceUnavailable
from kfm_pipelines.stores.layout import RESTRICTED, Failures, Store, Swap, by_path, read_if_exists

# Not for readers of the catalog: what reviewers see, raw messages and failures.
PRIVATE = ("work", "ingest", "dlq", "quarantine")
# Files without a name that are open at a time; a process may usually have 1024.
OPEN_FILES = 200
_libc = ctypes.CDLL(None, use_errno=True)


class FileStore(Store):
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

    def read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        return {path: data for path in paths if (data := read_if_exists(self, path)) is not None}

    def exists_all(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if self._resolve(path).is_file()}

    def write_all(self, files: Mapping[str, bytes]) -> Failures:
        return self._take_steps(files, lambda path: self._write_part(path, files[path]), self._rename_part)

    def create_all(self, files: Mapping[str, bytes]) -> Failures:
        paths, failures = list(files), Failures()
        for start in range(0, len(paths), OPEN_FILES):
            failures |= self._create_group({path: files[path] for path in paths[start : start + OPEN_FILES]})
        return failures

    def _create_group(self, files: Mapping[str, bytes]) -> Failures:
        unnamed: dict[str, int] = {}
        with ExitStack() as opened, _opened("/proc/self/fd") as descriptors:

            def write(path: str) -> None:
                # Has all its bytes before it has a name; until then it vanishes with the process.
                unnamed[path] = os.open(self._ensure_folder(path).parent, os.O_TMPFILE | os.O_WRONLY, 0o444)
                opened.callback(os.close, unnamed[path])
                with os.fdopen(unnamed[path], "wb", closefd=False) as file:
                    file.write(files[path])

            def link(path: str) -> None:
                try:
                    # With a folder's descriptor, `os.link` follows the symbolic link that /proc has for the file.
                    os.link(str(unnamed[path]), self._resolve(path), src_dir_fd=descriptors)
                except FileExistsError:
                    if self.digest(path) != hashlib.sha256(files[path]).hexdigest():
                        raise IntegrityBroken(f"{path} contains bytes that do not match its name") from None

            return self._take_steps(files, write, link)

    def replace_all(self, sources: Mapping[str, str]) -> Failures:
        def replace(target: str) -> None:
            # A second name for the same bytes, moved over the target in one step.
            source, second = self._require_file(sources[target]), _part(self._ensure_folder(target))
            second.unlink(missing_ok=True)
            os.link(source, second)
            self._rename_part(target)
            second.unlink(missing_ok=True)  # renaming does nothing if both are the same file already

        return self._take_steps(sources, replace)

    def swap_all(self, swaps: Sequence[Swap]) -> Failures:
        wanted, folders, failures = by_path(swaps), set(), Failures()

        def write(path: str) -> None:
            if self.digest(path) not in (wanted[path].expected, hashlib.sha256(wanted[path].data).hexdigest()):
                raise PointerMoved(f"{path} was changed by another writer in the meantime")
            self._write_part(path, wanted[path].data)

        for path in wanted:
            with _noting(failures, path):
                folders.add(self._ensure_folder(path).parent)
        with ExitStack() as opened:
            for folder in sorted(folders):  # in one order, so that two callers do not wait for each other
                fcntl.flock(opened.enter_context(_opened(folder)), fcntl.LOCK_EX)
            remaining = [path for path in wanted if path not in failures]
            return failures | self._take_steps(remaining, write, self._rename_part)

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

    def _take_steps(self, paths: Iterable[str], *steps: Callable[[str], None]) -> Failures:
        """Takes each step for every file that has not failed. What a step has written is on disk before the next step
        begins, so that no name leads to bytes that a power cut takes away."""
        failures, remaining = Failures(), list(paths)
        for path in remaining:
            self._resolve(path)  # an invalid path is refused before anything is written
        if not remaining:
            return failures
        with _noting(failures, *remaining), ExitStack() as opened:
            self._root.mkdir(mode=0o755, parents=True, exist_ok=True)
            # Opened before anything is written, because syncing reports the errors since then.
            root = opened.enter_context(_opened(self._root))
            for step in steps:
                for path in remaining:
                    with _noting(failures, path):
                        step(path)
                remaining = [path for path in remaining if path not in failures]
                if remaining:
                    sync_file_system(root)
        return failures

    def _write_part(self, path: str, data: bytes) -> None:
        with _part(self._ensure_folder(path)).open("wb") as file:
            if path.startswith(f"{RESTRICTED}/"):
                os.fchmod(file.fileno(), 0o600)  # its folders are private, but a copy's may not be
            file.write(data)

    def _rename_part(self, path: str) -> None:
        target = self._resolve(path)
        _part(target).replace(target)

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
def _noting(failures: Failures, *paths: str) -> Iterator[None]:
    """Notes the failure of these files. A full or failing disk is retryable: the work waits until it is fixed."""
    try:
        yield
    except KfmError as error:
        failures.update(dict.fromkeys(paths, error))
    except OSError as error:
        for path in paths:
            failure = ServiceUnavailable(f"{path} cannot be written: {error.strerror}")
            failure.__cause__ = error
            failures.setdefault(path, failure)


@contextmanager
def _opened(folder: str | Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def sync_file_system(descriptor: int) -> None:
    """Writes everything in memory to the disk, in one go: every file synced by itself would wait for the disk again."""
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

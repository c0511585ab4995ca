"""Files that several processes append whole lines to. A line is one write, so lines never run into each other."""

import errno
import os
from pathlib import Path

MAX_BYTES = 64 * 1024 * 1024


class AppendOnlyFile:
    """A text stream for one line at a time, for our eyes only. A file that has grown large makes room for a new one and
    is kept beside it; the one that was kept before goes."""

    closed = False

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._torn = False

    def write(self, line: str) -> int:
        """All of it, or an OSError. A full disk may have taken a part: what comes next then begins on a line of its
        own, and whoever reads passes over the torn one."""
        data = line.encode()
        descriptor = self._open()
        if self._torn:
            os.write(descriptor, b"\n")
            self._torn = False
        if os.write(descriptor, data) < len(data):
            self._torn = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(line)

    def flush(self) -> None:
        """Every write is with the system already."""

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is not None and (_is_deleted(self._descriptor) or self._rotate_if_full(self._descriptor)):
            self.close()
        if self._descriptor is None:
            _make_folders(self.path.parent)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return self._descriptor

    def _rotate_if_full(self, descriptor: int) -> bool:
        """Whoever finds it full moves it; whoever still has the moved file open notices by its name."""
        if os.fstat(descriptor).st_size < self._max_bytes:
            return False
        try:
            if os.path.samestat(self.path.stat(), os.fstat(descriptor)):
                self.path.replace(previous_path(self.path))
        except FileNotFoundError:
            pass
        return True


def _is_deleted(descriptor: int) -> bool:
    """Whether somebody removed the file, or the whole folder, while we had it open."""
    return os.fstat(descriptor).st_nlink == 0


def _make_folders(folder: Path) -> None:
    """Every folder that is missing on the way, for our eyes only; Path.mkdir would do that for the last one alone."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def previous_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.previous{path.suffix}")

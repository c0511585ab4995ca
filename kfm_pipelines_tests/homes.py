"""Homes of embedded stacks, made for a test and removed after it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 * 1024**3


@contextmanager
def temporary_home() -> Iterator[Path]:
    """Not under pytest's own folder: every session of pytest closes that one to other users again, and for root
    Postgres is another user. In memory where there is room: a database for each test is many small files.
    """
    is_roomy = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES
    with tempfile.TemporaryDirectory(prefix="kfm-home-", dir=IN_MEMORY if is_roomy else None) as folder:
        yield Path(folder)

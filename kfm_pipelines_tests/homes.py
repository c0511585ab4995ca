"""Homes of embedded stacks, made for a test and removed after it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_home() -> Iterator[Path]:
    """Not under pytest's own folder: every session of pytest closes that one to other users again, and for root
    Postgres is another user.
    """
    with tempfile.TemporaryDirectory(prefix="kfm-home-") as folder:
        yield Path(folder)

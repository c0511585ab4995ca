"""What only a store on files can get wrong: paths that lead out of it, and who may read what."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from kfm_pipelines.errors import PointerMoved, ServiceUnavailable
from kfm_pipelines.stores.files import FileStore


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("path", ["", ".", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "work/../x"])
def test_a_path_that_leads_out_of_the_store_is_refused(store: FileStore, tmp_path: Path, path: str) -> None:
    store.write("a/x", b"inside")
    (tmp_path / "x").write_bytes(b"outside")

    for attempt in (
        lambda: store.read(path),
        lambda: store.digest(path),
        lambda: store.write(path, b""),
        lambda: store.create(path, b""),
        lambda: store.replace("a/x", path),
        lambda: store.replace(path, "a/y"),
        lambda: store.swap(path, b"", None),
        lambda: store.remove(path),
        lambda: store.paths(path),
    ):
        with pytest.raises(ValueError, match="is not a path inside the store"):
            attempt()

    assert (tmp_path / "x").read_bytes() == b"outside"
    assert store.read("a/x") == b"inside"


def test_the_work_tier_is_for_its_owner_alone(store: FileStore, tmp_path: Path) -> None:
    store.write("work/restricted/usgs/key/1/table.parquet", b"unmasked")
    store.write("catalog/catalog.json", b"{}")
    assert mode(tmp_path / "store/work") == 0o700
    assert mode(tmp_path / "store/work/restricted/usgs/key/1") == 0o700
    assert mode(tmp_path / "store/catalog") & 0o077


@pytest.mark.parametrize("path", ["ingest/events/a.json", "dlq/usgs/2025-12-04/a.json", "quarantine/usgs/a.json"])
def test_messages_and_failures_are_for_nobody_else_either(tmp_path: Path, path: str) -> None:
    FileStore(str(tmp_path / "store")).write(path, b"{}")
    assert mode(tmp_path / "store" / path.split("/", maxsplit=1)[0]) == 0o700


def test_the_work_tier_is_closed_also_when_something_is_kept_there_first(store: FileStore, tmp_path: Path) -> None:
    store.write("a/x", b"x")
    store.replace("a/x", "work/staged/x")
    assert mode(tmp_path / "store/work") == 0o700


def test_kept_bytes_are_read_only_under_every_name(store: FileStore, tmp_path: Path) -> None:
    store.create("objects/data", b"data")
    store.replace("objects/data", "processed/data")
    kept, known = tmp_path / "store/objects/data", tmp_path / "store/processed/data"
    assert mode(kept) == mode(known) == 0o444
    assert kept.samefile(known)


def test_a_stop_in_the_middle_leaves_nothing_that_stays(store: FileStore, tmp_path: Path) -> None:
    store.create("objects/one", b"one")
    store.write("processed/one", b"old")
    (tmp_path / "store/processed/one.part").write_bytes(b"left by a predecessor")
    (tmp_path / "store/processed/two.part").write_bytes(b"half")
    store.replace("objects/one", "processed/one")
    store.write("processed/two", b"two")
    assert (store.read("processed/one"), store.read("processed/two")) == (b"one", b"two")
    assert store.paths("processed") == ["processed/one", "processed/two"]


def test_a_refused_swap_lets_go_of_its_lock(store: FileStore, tmp_path: Path) -> None:
    store.write("catalog/item", b"old")
    with pytest.raises(PointerMoved):
        store.swap("catalog/item", b"new", None)

    folder = os.open(tmp_path / "store/catalog", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)


def test_a_failing_disk_is_retryable(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/catalog").write_bytes(b"a file where a folder has to be")
    with pytest.raises(ServiceUnavailable, match=r"^catalog/item\.json cannot be written: "):
        store.write("catalog/item.json", b"{}")

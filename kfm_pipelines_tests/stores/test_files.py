"""What only a store on files can get wrong: paths that lead out of it, who may read what, what a power cut leaves."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm_pipelines.errors import PointerMoved, ServiceUnavailable
from kfm_pipelines.stores import Failures, Swap
from kfm_pipelines.stores.files import OPEN_FILES, FileStore, sync_file_system

HUNDRED = {f"objects/{number}": b"%d" % number for number in range(100)}
OLD = hashlib.sha256(b"old").hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


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
        lambda: store.write_all({"a/y": b"", path: b""}),
        lambda: store.create_all({"a/y": b"", path: b""}),
        lambda: store.replace_all({"a/y": "a/x", path: "a/x"}),
        lambda: store.swap_all([Swap("a/y", b"", None), Swap(path, b"", None)]),
        lambda: store.read_all([path]),
        lambda: store.exists_all([path]),
        lambda: store.remove(path),
        lambda: store.paths(path),
    ):
        with pytest.raises(ValueError, match="is not a path inside the store"):
            attempt()

    assert (tmp_path / "x").read_bytes() == b"outside"
    assert store.read("a/x") == b"inside"
    assert store.paths("a") == ["a/x"]


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


def test_folders_are_locked_in_one_order(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two calls could wait for each other."""
    locked: list[str] = []
    flock = fcntl.flock

    def lock(descriptor: int, operation: int) -> None:
        locked.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock)
    for names in (["b", "c", "a", "b"], ["c", "b", "b", "a"]):
        locked.clear()
        swaps = [Swap(f"catalog/{name}/{number}", b"", None) for number, name in enumerate(names)]
        assert store.swap_all(swaps) == {}
        assert locked == ["a", "b", "c"]


def test_nothing_to_do_leaves_no_trace(store: FileStore, tmp_path: Path) -> None:
    assert store.create_all({}) == store.write_all({}) == store.replace_all({}) == store.swap_all([]) == {}
    assert not (tmp_path / "store").exists()


def test_a_failing_disk_is_retryable(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/catalog").write_bytes(b"a file where a folder has to be")
    with pytest.raises(ServiceUnavailable, match=r"^catalog/item\.json cannot be written: "):
        store.write("catalog/item.json", b"{}")


def test_a_failing_disk_under_one_file_does_not_affect_the_others(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/bad").write_bytes(b"a file where a folder has to be")
    store.create("objects/one", b"one")
    attempts: list[Callable[[], Failures]] = [
        lambda: store.write_all({"catalog/1": b"1", "bad/2": b"2", "catalog/3": b"3"}),
        lambda: store.create_all({"objects/1": b"1", "bad/2": b"2", "objects/3": b"3"}),
        lambda: store.replace_all({"processed/1": "objects/one", "bad/2": "objects/one"}),
        lambda: store.swap_all([Swap("items/1", b"1", None), Swap("bad/2", b"2", None)]),
    ]
    for attempt in attempts:
        failures = attempt()
        assert list(failures) == ["bad/2"]
        assert isinstance(failures["bad/2"], ServiceUnavailable)
    assert store.read_all(["catalog/1", "catalog/3", "objects/1", "objects/3", "processed/1", "items/1"]) == {
        "catalog/1": b"1",
        "catalog/3": b"3",
        "objects/1": b"1",
        "objects/3": b"3",
        "processed/1": b"one",
        "items/1": b"1",
    }


# What each call does with a hundred files, and how many syncs it takes.
CALLS: dict[str, tuple[Callable[[FileStore], Failures], int]] = {
    "create": (lambda store: store.create_all(HUNDRED), 2),
    "write": (lambda store: store.write_all(HUNDRED), 2),
    "replace": (lambda store: store.replace_all(dict.fromkeys(HUNDRED, "kept")), 1),
    "swap": (lambda store: store.swap_all([Swap(path, data, OLD) for path, data in HUNDRED.items()]), 2),
}


@pytest.fixture
def ready(store: FileStore, request: pytest.FixtureRequest) -> FileStore:
    store.create("kept", b"kept")
    if request.node.callspec.params["name"] == "swap":
        store.write_all(dict.fromkeys(HUNDRED, b"old"))
    return store


@pytest.mark.parametrize("name", CALLS)
def test_a_hundred_files_have_their_bytes_synced_before_their_names(
    ready: FileStore, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[set[bytes]] = []

    def look(descriptor: int) -> None:
        """Notes what readers see at each sync, which may be all that a power cut leaves."""
        seen = [path for path in (tmp_path / "store/objects").rglob("*") if path.suffix != ".part"]
        synced.append({path.read_bytes() for path in seen})
        sync_file_system(descriptor)

    monkeypatch.setattr("kfm_pipelines.stores.files.sync_file_system", look)
    call, syncs = CALLS[name]
    assert call(ready) == {}
    assert len(synced) == syncs
    written = {b"kept"} if name == "replace" else set(HUNDRED.values())
    assert synced[-1] == written
    if syncs == 2:
        assert not synced[0] & written


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_what_cannot_be_synced_has_failed(
    ready: FileStore, name: str, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, syncs = CALLS[name]
    numbers = iter(range(1, syncs + 1))

    def fail(descriptor: int) -> None:
        if next(numbers) == min(failing, syncs):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync_file_system(descriptor)

    before = ready.read_all(HUNDRED)
    with monkeypatch.context() as patch:
        patch.setattr("kfm_pipelines.stores.files.sync_file_system", fail)
        failures = call(ready)
    assert list(failures) == list(HUNDRED)
    assert {str(failure) for path, failure in failures.items()} == {
        f"{path} cannot be written: Input/output error" for path in HUNDRED
    }
    if failing < syncs:
        assert ready.read_all(HUNDRED) == before
    assert call(ready) == {}


def test_a_sync_that_fails_raises() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_file_system(-1)


def test_few_files_are_open_at_a_time(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def count(descriptor: int) -> None:
        opened.append(open_descriptors())
        sync_file_system(descriptor)

    before = open_descriptors()
    monkeypatch.setattr("kfm_pipelines.stores.files.sync_file_system", count)
    assert store.create_all({f"objects/{number}": b"x" for number in range(2 * OPEN_FILES + 1)}) == {}
    assert len(opened) == 6
    assert max(opened) < before + OPEN_FILES + 5
    assert open_descriptors() <= before  # other threads may have closed some

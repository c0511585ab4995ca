"""Work folders are in the process, large files on disk without a name; everything else is in the store behind."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.stores import Failures, Layout, WorkStore
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines.stores.work import IN_MEMORY_BYTES

KEY = "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0"
LAYOUT = Layout("usgs-streamflow")
TABLE, STAGED = LAYOUT.computed_table(KEY, 1), LAYOUT.staged_data(KEY, 1)
SMALL, LARGE = b"small", b"large" * IN_MEMORY_BYTES


@pytest.fixture
def store(tmp_path: Path) -> WorkStore:
    return WorkStore(FileStore(tmp_path / "store"))


@pytest.mark.parametrize("data", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
def test_a_work_file_is_only_in_this_process(store: WorkStore, tmp_path: Path, data: bytes) -> None:
    store.write(TABLE, data)
    store.write(STAGED, SMALL)
    assert store.read(TABLE) == store.read_work(TABLE) == data
    assert store.exists(TABLE)
    assert store.paths("work") == [TABLE, STAGED]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    store.move(TABLE, STAGED)
    assert (store.read(STAGED), store.read_local(TABLE)) == (data, None)
    store.keep(STAGED)
    assert store.durable.read(STAGED) == data


def test_forgotten_files_free_the_disk(store: WorkStore) -> None:
    for epoch in (1, 2):
        store.write(LAYOUT.computed_table(KEY, epoch), LARGE)
    store.write(LAYOUT.computed_table("other", 1), SMALL)
    assert store._spill is not None
    disk = store._spill.fileno()
    assert (os.fstat(disk).st_size, os.fstat(disk).st_nlink) == (2 * len(LARGE), 0)
    store.forget_work(LAYOUT, [KEY])
    assert os.fstat(disk).st_size == 0
    assert store.paths("work") == [LAYOUT.computed_table("other", 1)]
    store.write(TABLE, LARGE)
    assert store.read(TABLE) == LARGE


def test_a_table_of_another_process_is_not_looked_for(store: WorkStore) -> None:
    store.durable.write(TABLE, SMALL)
    assert store.read(TABLE) == SMALL
    with pytest.raises(ServiceUnavailable, match="ended with the process that made it"):
        store.read_work(TABLE)


def test_a_full_temporary_folder_is_retryable(store: WorkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kfm_pipelines.stores.work.TemporaryFile", no_space)
    with pytest.raises(ServiceUnavailable, match="No space left on device"):
        store.write(TABLE, LARGE)


def test_a_shared_file_is_looked_up_once_in_a_run(store: WorkStore) -> None:
    store.create_shared("objects/shared", SMALL)
    store.durable.discard("objects/shared")
    store.create_shared("objects/shared", SMALL)
    assert not store.exists("objects/shared")
    store.recheck_shared()
    store.create_shared("objects/shared", SMALL)
    store.discard("objects/shared")
    store.create_shared("objects/shared", SMALL)
    assert store.read("objects/shared") == SMALL


def test_many_files_are_written_and_read_wherever_they_belong(store: WorkStore, tmp_path: Path) -> None:
    files = {TABLE: LARGE, STAGED: SMALL, "catalog/a": SMALL, "catalog/b": b""}
    assert store.write_all(files) == {}
    assert store.read_all([*files, "catalog/none"]) == files
    assert store.exists_all([*files, "catalog/none"]) == set(files)
    assert sorted(store.durable.paths("catalog")) == ["catalog/a", "catalog/b"]
    assert store.durable.paths("work") == []


def test_a_full_temporary_folder_does_not_affect_other_files(store: WorkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kfm_pipelines.stores.work.TemporaryFile", no_space)
    failures = store.write_all({TABLE: LARGE, STAGED: SMALL, "catalog/a": SMALL})
    assert {path: type(failure) for path, failure in failures.items()} == {TABLE: ServiceUnavailable}
    assert store.read_all([TABLE, STAGED, "catalog/a"]) == {STAGED: SMALL, "catalog/a": SMALL}


def test_shared_files_are_looked_up_together_and_once(store: WorkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[set[str]] = []
    created: list[set[str]] = []
    exists_all, create_all = FileStore.exists_all, FileStore.create_all

    def looking(durable: FileStore, paths: Iterable[str]) -> set[str]:
        looked_up.append(set(paths))
        return exists_all(durable, looked_up[-1])

    def creating(durable: FileStore, files: Mapping[str, bytes]) -> Failures:
        created.append(set(files))
        return create_all(durable, files)

    store.durable.create_all({"objects/a": SMALL, "objects/wrong": b"other"})
    monkeypatch.setattr(FileStore, "exists_all", looking)
    monkeypatch.setattr(FileStore, "create_all", creating)
    files = {"objects/a": SMALL, "objects/b": SMALL}
    assert store.create_shared_all(files) == {}
    assert store.create_shared_all(files | {"objects/c": SMALL}) == {}
    assert looked_up == [{"objects/a", "objects/b"}, {"objects/c"}]
    assert created == [{"objects/b"}, {"objects/c"}]
    assert store.read_all(["objects/b", "objects/c"]) == {"objects/b": SMALL, "objects/c": SMALL}


def test_a_shared_file_that_could_not_be_created_is_tried_again(store: WorkStore, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/bad").write_bytes(b"a file where a folder has to be")
    files = {"bad/a": SMALL, "objects/b": SMALL}
    assert list(store.create_shared_all(files)) == ["bad/a"]
    (tmp_path / "store/bad").unlink()
    assert store.create_shared_all(files) == {}
    assert store.read_all(files) == files

"""Work folders are in the process, large files on disk without a name; everything else is in the store behind."""

import os
from pathlib import Path

import pytest

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.stores import Layout, WorkStore
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

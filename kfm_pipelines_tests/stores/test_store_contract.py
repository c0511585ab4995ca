"""What every store promises, tried on files and on S3 alike (P1)."""

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, PointerMoved
from kfm_pipelines.stores import Store, Swap

OLD, NEW = b"old" * 20_000, b"new!" * 20_000
READER = """
import json, sys
from pathlib import Path
from kfm_pipelines.stores import open_store

store, stop = open_store(sys.argv[1]), Path(sys.argv[3])
seen = {store.digest(sys.argv[2])}
print("reading", flush=True)
while not stop.exists():
    seen.add(store.digest(sys.argv[2]))
print(json.dumps(sorted(map(str, seen))))
"""
NAME = "processed/usgs-streamflow/usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0.parquet"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def reader_in_another_process(store: Store, stop: Path) -> Iterator[list[str]]:
    """Somebody who reads NAME again and again; afterwards the list has the digests it has seen."""
    seen: list[str] = []
    command = [sys.executable, "-c", READER, store.url, NAME, str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "reading\n"
        try:
            yield seen
        finally:
            stop.touch()
            seen += json.loads(process.stdout.read())


def test_what_is_written_is_read(store: Store) -> None:
    store.write(NAME, OLD)
    assert store.read(NAME) == OLD
    store.write(NAME, NEW)
    assert store.read(NAME) == NEW


def test_no_bytes_are_bytes_too(store: Store) -> None:
    store.write("catalog/empty", b"")
    assert store.read("catalog/empty") == b""
    assert store.digest("catalog/empty") == sha256(b"")


def test_what_is_not_there_is_missing(store: Store) -> None:
    with pytest.raises(ObjectMissing, match=f"catalog/none is not in the store {store.url}"):
        store.read("catalog/none")
    assert store.digest("catalog/none") is None
    assert not store.exists("catalog/none")


def test_what_is_there_exists_and_a_folder_does_not(store: Store) -> None:
    store.write(NAME, OLD)
    assert store.exists(NAME)
    assert not store.exists(NAME.rsplit("/", 1)[0])
    assert not store.exists(NAME[:-1])


def test_a_digest_is_the_sha256_of_the_bytes(store: Store) -> None:
    store.write(NAME, OLD)
    assert store.digest(NAME) == sha256(OLD)


def test_kept_bytes_have_their_name_for_ever(store: Store) -> None:
    store.create("objects/one", OLD)
    store.create("objects/one", OLD)
    with pytest.raises(IntegrityBroken, match="objects/one contains bytes that do not match"):
        store.create("objects/one", NEW)
    assert store.read("objects/one") == OLD
    assert store.paths("objects") == ["objects/one"]


def test_a_replaced_target_has_the_bytes_of_the_source(store: Store) -> None:
    store.write("work/staged/one", OLD)
    store.replace("work/staged/one", NAME)
    assert store.read(NAME) == OLD
    store.write("work/staged/one", NEW)
    assert store.read(NAME) == OLD
    store.replace("work/staged/one", NAME)
    assert (store.read(NAME), store.read("work/staged/one")) == (NEW, NEW)


def test_replacing_with_the_same_bytes_changes_nothing(store: Store) -> None:
    store.write("work/staged/one", OLD)
    store.replace("work/staged/one", NAME)
    store.replace("work/staged/one", NAME)
    assert store.read(NAME) == OLD
    store.remove("work")
    assert store.paths("work") == []


def test_a_pointer_is_set_where_none_was(store: Store) -> None:
    store.swap("catalog/item.json", NEW, None)
    assert store.read("catalog/item.json") == NEW


def test_a_pointer_is_swapped_where_the_expected_one_was(store: Store) -> None:
    store.write("catalog/item.json", OLD)
    store.swap("catalog/item.json", NEW, sha256(OLD))
    assert store.read("catalog/item.json") == NEW


@pytest.mark.parametrize("expected", [None, sha256(b"another")])
def test_a_pointer_somebody_moved_is_left_alone(store: Store, expected: str | None) -> None:
    store.write("catalog/item.json", OLD)
    with pytest.raises(PointerMoved, match=r"catalog/item.json was changed by another writer"):
        store.swap("catalog/item.json", NEW, expected)
    assert store.read("catalog/item.json") == OLD


def test_a_pointer_somebody_removed_is_not_set_again(store: Store) -> None:
    with pytest.raises(PointerMoved):
        store.swap("catalog/item.json", NEW, sha256(OLD))
    assert store.digest("catalog/item.json") is None


@pytest.mark.parametrize("expected", [None, sha256(OLD), sha256(NEW)])
def test_a_pointer_that_is_there_already_is_success(store: Store, expected: str | None) -> None:
    store.write("catalog/item.json", NEW)
    store.swap("catalog/item.json", NEW, expected)
    assert store.read("catalog/item.json") == NEW


@pytest.mark.parametrize("present", [None, OLD])
def test_of_many_swaps_from_the_same_pointer_one_wins(store: Store, present: bytes | None) -> None:
    expected = None if present is None else sha256(present)
    if present is not None:
        store.write("catalog/item.json", present)
    # Large, so that all have looked at the pointer before the first is done with its own bytes.
    documents = [b"revision by %d" % number * 600_000 for number in range(8)]
    together = threading.Barrier(8)

    def swap(number: int) -> bool:
        together.wait()
        try:
            store.swap("catalog/item.json", documents[number], expected)
        except PointerMoved:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(swap, range(8)))
    assert won.count(True) == 1
    assert store.read("catalog/item.json") == documents[won.index(True)]


def test_a_source_that_is_gone_is_missing_and_nothing_is_published(store: Store) -> None:
    store.write("work/staged/other", OLD)
    with pytest.raises(ObjectMissing):
        store.replace("work/staged/none", "catalog/target")
    assert store.paths("catalog") == []


def test_a_folder_is_removed_with_all_that_is_in_it_and_nothing_else(store: Store) -> None:
    for path in ("work/a/1/x", "work/a/1/y/z", "work/a/10/x", "work/b/x"):
        store.write(path, b"x")
    store.remove("work/a/1")
    assert store.paths("work") == ["work/a/10/x", "work/b/x"]
    store.remove("work/a/1")
    store.remove("never/there")


def test_paths_are_those_of_the_folder_sorted(store: Store) -> None:
    assert store.paths("catalog") == []
    for path in ("catalog/b.json", "catalog/a/items/1.json", "catalogue/no.json", "catalog/a.json"):
        store.write(path, b"{}")
    assert store.paths("catalog") == ["catalog/a.json", "catalog/a/items/1.json", "catalog/b.json"]
    assert store.paths("catalog/a") == ["catalog/a/items/1.json"]


@pytest.mark.slow
@pytest.mark.parametrize("move", ["write", "replace", "swap"])
def test_a_reader_sees_the_old_bytes_or_the_new_ones_and_always_some(store: Store, tmp_path: Path, move: str) -> None:
    contents = (OLD, NEW)
    store.write(NAME, OLD)
    for number, content in enumerate(contents):
        store.write(f"work/staged/{number}", content)
    moves: dict[str, Callable[[int], None]] = {
        "write": lambda turn: store.write(NAME, contents[turn]),
        "replace": lambda turn: store.replace(f"work/staged/{turn}", NAME),
        "swap": lambda turn: store.swap(NAME, contents[turn], sha256(contents[1 - turn])),
    }

    with reader_in_another_process(store, tmp_path / "stop") as seen:
        until = time.monotonic() + 1
        for turn in cycle([1, 0]):
            moves[move](turn)
            if time.monotonic() > until:
                break

    assert seen == sorted([sha256(OLD), sha256(NEW)])


def test_very_many_files_are_written_at_once(store: Store) -> None:
    count = 3000 if store.url.startswith("file:") else 500  # the emulator takes its time
    many = {f"objects/{number % 7}/{number}": b"%d" % number for number in range(count)}
    assert store.create_all(many) == {}
    assert store.read_all(many) == many
    assert store.exists_all([*many, "objects/none"]) == set(many)
    store.remove("objects")
    assert store.paths("objects") == []


def test_nothing_to_do_is_done(store: Store) -> None:
    assert store.create_all({}) == store.write_all({}) == store.replace_all({}) == store.swap_all([]) == {}
    assert store.read_all([]) == {}
    assert store.exists_all([]) == set()
    assert store.paths("catalog") == []


def test_only_what_is_there_is_read(store: Store) -> None:
    store.write_all({"catalog/a": OLD, "catalog/empty": b""})
    wanted = ["catalog/a", "catalog/none", "catalog/empty", "catalog/a"]
    assert store.read_all(iter(wanted)) == {"catalog/a": OLD, "catalog/empty": b""}


def test_one_name_with_other_bytes_does_not_affect_the_others(store: Store) -> None:
    store.create("objects/2", b"other")
    failures = store.create_all({f"objects/{number}": OLD for number in range(5)})
    assert {path: type(failure) for path, failure in failures.items()} == {"objects/2": IntegrityBroken}
    assert "objects/2 contains bytes that do not match its name" in str(failures["objects/2"])
    assert store.read_all(store.paths("objects")) == {
        f"objects/{number}": b"other" if number == 2 else OLD for number in range(5)
    }


def test_one_source_that_is_gone_does_not_affect_the_others(store: Store) -> None:
    store.create_all({"objects/old": OLD, "objects/new": NEW})
    sources = {"catalog/a": "objects/old", "catalog/b": "objects/none", "catalog/c": "objects/new"}
    failures = store.replace_all(sources | {"catalog/d": "objects/old"})
    assert {path: type(failure) for path, failure in failures.items()} == {"catalog/b": ObjectMissing}
    assert store.read_all(store.paths("catalog")) == {"catalog/a": OLD, "catalog/c": NEW, "catalog/d": OLD}


def test_one_moved_pointer_does_not_affect_the_others(store: Store) -> None:
    store.write_all({f"catalog/{number}/item": OLD for number in range(4)})
    swaps = [Swap(f"catalog/{number}/item", NEW, sha256(OLD)) for number in range(4)]
    swaps[1] = Swap("catalog/1/item", NEW, sha256(b"another"))
    swaps[2] = Swap("catalog/2/item", NEW, None)
    failures = store.swap_all([*swaps, Swap("catalog/new/item", NEW, None), Swap("catalog/gone", NEW, sha256(OLD))])
    moved = ["catalog/1/item", "catalog/2/item", "catalog/gone"]
    assert {path: type(failure) for path, failure in failures.items()} == dict.fromkeys(moved, PointerMoved)
    assert store.read_all(store.paths("catalog")) == {
        "catalog/0/item": NEW,
        "catalog/1/item": OLD,
        "catalog/2/item": OLD,
        "catalog/3/item": NEW,
        "catalog/new/item": NEW,
    }


def test_swaps_that_were_made_already_are_success(store: Store) -> None:
    swaps = [Swap(f"catalog/{number}", NEW, None) for number in range(3)]
    assert store.swap_all(swaps) == store.swap_all(swaps) == {}


def test_two_swaps_of_the_same_pointer_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="about the same path"):
        store.swap_all([Swap("catalog/a", OLD, None), Swap("catalog/b", OLD, None), Swap("catalog/a", NEW, None)])
    assert store.paths("catalog") == []


def test_every_file_is_replaced_whatever_the_others_have(store: Store) -> None:
    paths = [f"catalog/{number}" for number in range(40)]
    assert store.write_all(dict.fromkeys(paths, OLD)) == {}
    assert store.write_all(dict.fromkeys(paths, NEW)) == {}
    assert store.read_all(paths) == dict.fromkeys(paths, NEW)


def test_of_two_writers_of_the_same_pointers_one_wins_each(store: Store) -> None:
    pointers = [f"catalog/{number % 3}/{number}" for number in range(30)]
    contents = [{path: b"%d %s" % (writer, path.encode()) * 1000 for path in pointers} for writer in range(2)]
    together = threading.Barrier(2)

    def swap(writer: int) -> set[str]:
        # In opposite order, so that locks taken as they come would wait for each other.
        swaps = [Swap(path, contents[writer][path], None) for path in pointers[:: 1 - 2 * writer]]
        together.wait()
        failures = store.swap_all(swaps)
        assert all(isinstance(failure, PointerMoved) for failure in failures.values())
        return set(pointers) - set(failures)

    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(swap, range(2)))
    assert not won[0] & won[1]
    assert won[0] | won[1] == set(pointers)
    winners = {path: contents[0 if path in won[0] else 1][path] for path in pointers}
    assert store.read_all(pointers) == winners

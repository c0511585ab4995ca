"""S3 answers 500, 503 or 409, resets connections and loses answers: every write has one effect, or none (P1)."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kfm_pipelines.aws.clients import ATTEMPTS, s3_client
from kfm_pipelines.aws.objects import Bucket
from kfm_pipelines.errors import IntegrityBroken, PointerMoved, ServiceUnavailable
from kfm_pipelines.stores import Store
from kfm_pipelines.stores.s3 import TRIES, S3Store
from kfm_pipelines_tests.fixtures.stores.s3_faults import (
    FAULTS,
    Answer,
    Fault,
    Forward,
    Request,
    Wire,
    conflict,
    cut,
    damaged,
    lost,
    reset,
)

OLD, NEW, OTHER = b"old" * 1000, b"new" * 1000, b"somebody else's" * 1000
SOURCE, TARGET = "work/staged/one", "catalog/item.json"
# What each action calls S3 for, and how many versions of the target there are when it has had one effect.
ACTIONS: Mapping[str, tuple[Callable[[Store], None], str, int]] = {
    "write": (lambda store: store.write(TARGET, NEW), "PutObject", 1),
    "keep": (lambda store: store.create(TARGET, NEW), "PutObject", 1),
    "replace": (lambda store: store.replace(SOURCE, TARGET), "CopyObject", 1),
    "swap from nothing": (lambda store: store.swap(TARGET, NEW, None), "PutObject", 1),
    "swap": (lambda store: store.swap(TARGET, NEW, hashlib.sha256(OLD).hexdigest()), "PutObject", 2),
}
CONDITIONAL = ("keep", "swap from nothing", "swap")


@pytest.fixture
def store(bucket: str, wire: Wire) -> Store:
    opened = S3Store(Bucket(bucket, wire.client, read_seconds=1), "releases")
    opened.write(SOURCE, NEW)
    return opened


def versions(bucket: str) -> list[Mapping[str, Any]]:
    found = s3_client().list_object_versions(Bucket=bucket, Prefix=f"releases/{TARGET}")
    assert not found.get("DeleteMarkers")
    return list(found.get("Versions", []))


def begin(store: Store, name: str) -> tuple[Callable[[Store], None], str, int]:
    if name == "swap":
        store.write(TARGET, OLD)
    return ACTIONS[name]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", ACTIONS)
def test_one_bad_answer_is_made_good(store: Store, wire: Wire, bucket: str, name: str, fault: Fault) -> None:
    action, operation, expected = begin(store, name)
    with wire.meeting(fault, operation) as calls:
        action(store)
    assert store.read(TARGET) == NEW
    assert len(calls) == ATTEMPTS
    if name in CONDITIONAL:
        assert len(versions(bucket)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", ["keep", "replace", "swap"])
def test_a_lasting_fault_raises_soon_and_the_call_can_be_repeated(
    store: Store, wire: Wire, bucket: str, name: str, fault: Fault
) -> None:
    action, operation, expected = begin(store, name)
    with wire.meeting(fault, operation, lambda _: True) as calls, pytest.raises(ServiceUnavailable):
        action(store)
    assert len(calls) == ATTEMPTS
    action(store)
    assert store.read(TARGET) == NEW
    if name in CONDITIONAL:
        assert len(versions(bucket)) == expected


@pytest.mark.parametrize("name", CONDITIONAL)
def test_a_conflict_that_passes_is_waited_for(store: Store, wire: Wire, bucket: str, name: str) -> None:
    action, operation, expected = begin(store, name)
    with wire.meeting(conflict, operation, lambda call: call <= 2) as calls:
        action(store)
    assert (store.read(TARGET), len(calls), len(versions(bucket))) == (NEW, 3, expected)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_a_lasting_conflict_raises(
    store: Store, wire: Wire, bucket: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm_pipelines.stores.s3.SHORTEST_PAUSE_SECONDS", 0.001)
    action, operation, expected = begin(store, name)
    with (
        wire.meeting(conflict, operation, lambda _: True) as calls,
        pytest.raises(ServiceUnavailable, match=f"{TARGET}: gave up after {TRIES} conflicting writes"),
    ):
        action(store)
    assert (len(calls), len(versions(bucket))) == (TRIES, expected - 1)


@pytest.mark.parametrize("bytes_there", [NEW, OTHER], ids=["the same bytes", "other bytes"])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_whoever_wins_a_conflict_decides_what_it_was(
    store: Store, wire: Wire, bucket: str, name: str, bytes_there: bytes
) -> None:
    """The same bytes are success, regardless of their writer; other bytes are another writer's."""
    action, operation, expected = begin(store, name)

    def outrun(request: Request, forward: Forward) -> Answer | None:
        s3_client().put_object(Bucket=bucket, Key=f"releases/{TARGET}", Body=bytes_there)
        return conflict(request, forward)

    with wire.meeting(outrun, operation):
        if bytes_there == NEW:
            action(store)
        else:
            with pytest.raises(IntegrityBroken if name == "keep" else PointerMoved):
                action(store)
    assert (store.read(TARGET), len(versions(bucket))) == (bytes_there, expected)


@pytest.mark.parametrize("name", ["write", *CONDITIONAL])
def test_bytes_damaged_on_their_way_are_refused_by_s3_itself(store: Store, wire: Wire, bucket: str, name: str) -> None:
    action, operation, expected = begin(store, name)
    with wire.meeting(damaged, operation, lambda _: True), pytest.raises(ServiceUnavailable, match="BadDigest"):
        action(store)
    assert len(versions(bucket)) == expected - 1
    action(store)
    there = s3_client().head_object(Bucket=bucket, Key=f"releases/{TARGET}", ChecksumMode="ENABLED")
    assert there["ChecksumSHA256"] == base64.b64encode(hashlib.sha256(NEW).digest()).decode()


@pytest.mark.parametrize("fault", [reset, lost])
def test_reads_and_removals_are_made_good_too(store: Store, wire: Wire, fault: Fault) -> None:
    with wire.meeting(fault, "GetObject"):
        assert store.read(SOURCE) == NEW
    with wire.meeting(fault, "HeadObject"):
        assert store.exists(SOURCE)
    with wire.meeting(fault, "DeleteObjects"):
        store.discard(SOURCE)
    with wire.meeting(fault, "ListObjectsV2"):
        assert store.paths("work") == []


def test_half_a_body_is_not_taken_for_the_whole(store: Store, wire: Wire) -> None:
    with wire.meeting(cut, "GetObject") as calls:
        assert store.read(SOURCE) == NEW
    assert len(calls) == ATTEMPTS
    with wire.meeting(cut, "GetObject", lambda _: True), pytest.raises(ServiceUnavailable):
        store.read(SOURCE)

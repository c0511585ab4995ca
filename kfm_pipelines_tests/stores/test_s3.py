"""What only a store on S3 can get wrong: requests, content types, objects that nobody's store has put, and forks."""

import hashlib
import os
from pathlib import Path

import pytest

from kfm_pipelines.aws.clients import s3_client, traffic
from kfm_pipelines.aws.objects import Bucket
from kfm_pipelines.stores import Store, Swap, open_store
from kfm_pipelines.stores.s3 import S3Store
from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.stores.s3_faults import Wire

HUNDRED = {f"objects/{number}": b"%d" % number for number in range(100)}
# The modules are loaded in the process from which this one is forked.
FORKED = """
import sys, threading
assert "obstore" in sys.modules
assert len(list(__import__("pathlib").Path("/proc/self/task").iterdir())) == 1
from kfm_pipelines.stores import open_store
files = {f"catalog/{number}": b"x" for number in range(50)}
assert open_store(sys.argv[1]).write_all(files) == {}
"""


@pytest.fixture
def store(bucket: str, wire: Wire) -> Store:
    return S3Store(Bucket(bucket, wire.client), "releases")


def test_a_hundred_files_take_a_hundred_requests(store: Store, wire: Wire) -> None:
    assert store.create_all(HUNDRED) == {}
    assert wire.requests == {"PutObject": 100}
    assert store.create_all(HUNDRED) == {}
    assert wire.requests == {"PutObject": 200, "GetObject": 100}
    wire.requests.clear()
    assert store.write_all(HUNDRED) == {}
    assert store.replace_all({f"processed/{number}": f"objects/{number}" for number in range(100)}) == {}
    assert store.swap_all([Swap(f"items/{number}", b"new", None) for number in range(100)]) == {}
    assert store.exists_all(HUNDRED) == set(HUNDRED)
    assert wire.requests == {"PutObject": 200, "CopyObject": 100, "HeadObject": 100}
    wire.requests.clear()
    old = hashlib.sha256(b"new").hexdigest()
    assert store.swap_all([Swap(f"items/{number}", b"newer", old) for number in range(100)]) == {}
    assert wire.requests == {"GetObject": 100, "PutObject": 100}
    wire.requests.clear()
    store.remove("objects")
    assert wire.requests == {"ListObjectsV2": 1, "DeleteObjects": 1}


def test_bodies_count_as_traffic(store: Store) -> None:
    files = {f"catalog/{number}": bytes(10_000) for number in range(10)}
    sent, received = traffic.sent, traffic.received
    store.write_all(files)
    assert (traffic.sent - sent, traffic.received - received) == (100_000, 0)
    store.read_all(files)
    assert (traffic.sent - sent, traffic.received - received) == (100_000, 100_000)


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("a.html", "text/html"),
        ("a.json", "application/json"),
        ("a.parquet", "application/vnd.apache.parquet"),
        ("a.pem", "application/octet-stream"),
    ],
)
def test_a_browser_knows_what_it_gets(store: Store, bucket: str, path: str, content_type: str) -> None:
    store.write(path, b"{}")
    store.create(f"objects/{path}", b"{}")
    store.swap(f"items/{path}", b"{}", None)
    store.replace(path, f"copies/{path}")
    for name in (path, f"objects/{path}", f"items/{path}", f"copies/{path}"):
        found = s3_client().head_object(Bucket=bucket, Key=f"releases/{name}")
        assert (name, found["ContentType"]) == (name, content_type)


@pytest.mark.parametrize("name", ["catalog/", "catalog/folder/", "catalog//a.json", "catalog/../a.json", "catalog/\t"])
def test_an_object_that_no_store_has_put_is_foreign(store: Store, bucket: str, name: str) -> None:
    store.write("catalog/a.json", b"{}")
    s3_client().put_object(Bucket=bucket, Key=f"releases/{name}", Body=b"")
    assert store.paths("catalog") == ["catalog/a.json"]
    assert store.foreign_entries("catalog") == [name]
    assert store.foreign_entries("processed") == []
    store.remove("catalog")
    assert store.paths("catalog") == []


@pytest.mark.slow
def test_a_forked_process_has_a_store_of_its_own(bucket: str, tmp_path: Path) -> None:
    url = f"s3://{bucket}/releases"
    with (tmp_path / "log").open("wb") as log:
        process = Forked(["-c", FORKED, url], env=dict(os.environ), stdout=log, stderr=log)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    assert len(open_store(url).paths("catalog")) == 50

"""Sixteen concurrent publishers of one collection lose no Item; of several publishers of one key one wins (P1)."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.runs.batches import (
    UploadedObject,
    applied,
    publish,
    read_content_hash,
    reading,
    receive,
    upload,
    walk_catalog,
)
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site

PUBLISHERS = 16
RIVALS = 4


@pytest.fixture(params=["files", "s3"])
def site(request: pytest.FixtureRequest, stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    settings = {} if request.param == "files" else {"KFM_STORE_URL": f"s3://many-{uuid4().hex[:8]}/published"}
    with opened_site(tmp_path / "site", stack.environment["KFM_POSTGRES_URL"], site_template, **settings) as opened:
        yield opened


def all_at_once(site: Site, count: int, work: Callable[[Services, int], None]) -> None:
    """Runs the work in threads, each with its own services as in a process."""
    together = threading.Barrier(count)

    def begin(number: int) -> None:
        services = Services(load_settings(site.environment))
        try:
            together.wait()
            work(services, number)
        finally:
            services.close()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(begin, range(count)))


@pytest.mark.slow
def test_no_update_is_lost(site: Site) -> None:
    objects = [upload(site, hour=hour, version=hour) for hour in range(PUBLISHERS)]
    contested = UploadedObject(site.key(0), upload(site, version=99).message)
    for one in objects:
        receive(site.services, one)
    layout, store = Layout(site.dataset.pipeline), site.services.store

    def publish_own(services: Services, number: int) -> None:
        publish(services, site.dataset, [objects[number].key], f"run-{number}")

    def publish_same(services: Services, number: int) -> None:
        publish(services, site.dataset, [contested.key], f"rival-{number}")

    all_at_once(site, PUBLISHERS, publish_own)

    keys = sorted(one.key for one in objects)
    assert applied(site.services) == dict.fromkeys(keys, 1)
    assert_collection_has(site, keys)
    assert all(read_content_hash(store, layout.item(key)) for key in keys)

    receive(site.services, contested)
    before = read_content_hash(store, layout.item(contested.key))
    with reading(store, layout.item(contested.key)) as seen:
        all_at_once(site, RIVALS, publish_same)
    after = read_content_hash(store, layout.item(contested.key))
    assert after != before
    assert (seen.problems, seen.contents) == ([], {before, after})
    assert applied(site.services)[contested.key] == 2
    assert_collection_has(site, keys)


def assert_collection_has(site: Site, keys: list[str]) -> None:
    found = [document for _, document in walk_catalog(site.services.store)]
    assert sorted(document["id"] for document in found if document["type"] == "Feature") == keys
    [collection] = [document for document in found if document["type"] == "Collection"]
    [interval] = collection["extent"]["temporal"]["interval"]
    assert interval == [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (START, START + timedelta(hours=PUBLISHERS))]
    boxes = [document["bbox"] for document in found if document["type"] == "Feature"]
    around = [min(box[0] for box in boxes), min(box[1] for box in boxes)]
    around += [max(box[2] for box in boxes), max(box[3] for box in boxes)]
    assert collection["extent"]["spatial"]["bbox"] == [around]

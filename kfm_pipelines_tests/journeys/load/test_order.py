"""The result is the same for any order, number, shape and number of workers."""

import io
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, reduce
from operator import add
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.inbox.drain import drain
from kfm_pipelines.inbox.record import BatchCounts
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site, opened_site

pytestmark = pytest.mark.slow

HOURS = 100
PARTS = 4
REWRITTEN = 50
ANNOUNCED = 150
SENT = 1000
PUBLISHED = ("catalog", "objects", "processed")
WORKER = """
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines_tests.fixtures.sites.site import work_once

work_once(Services(load_settings()))
"""


@dataclass(frozen=True)
class Bucket:
    """Objects of many hours in parts, some of them written twice, and the tree that results from events in order."""

    postgres_url: str
    template: str
    resources: str
    messages: tuple[str, ...]  # each event once, in order
    arriving: tuple[str, ...]  # the same events as the world delivers them
    tree: dict[str, str]

    @contextmanager
    def open_site(self, root: Path) -> Iterator[Site]:
        with opened_site(root, self.postgres_url, self.template, KFM_RESOURCES=self.resources) as site:
            yield site


@pytest.fixture(scope="module")
def bucket(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    postgres_url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path_factory.mktemp("in-order"), postgres_url, site_template) as site:
        s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})
        puts = _upload(site)
        messages = tuple(site.s3_message(put, sequencer=f"{number:016X}") for number, put in enumerate(puts))
        site.send_all(messages)
        assert work_in_batches(site) == {"keys": HOURS, "published": HOURS, "skipped": 0, "failed": 0}
        arriving = _as_the_world_delivers(site, puts, messages)
        resources = site.environment["KFM_RESOURCES"]
        return Bucket(postgres_url, site_template, resources, messages, arriving, site.tree(*PUBLISHED))


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Iterator[Site]:
    """Another site over the same objects, its queue empty."""
    with bucket.open_site(tmp_path / "site") as opened:
        yield opened


def test_any_order_gives_the_same_bytes(site: Site, bucket: Bucket) -> None:
    site.send_all(bucket.arriving)

    assert work_in_batches(site) == {"keys": HOURS, "published": HOURS, "skipped": 0, "failed": 0}

    assert site.tree(*PUBLISHED) == bucket.tree
    assert site.fetch("SELECT received FROM kfm.queue_totals") == [{"received": SENT}]
    assert _applied(site) == {(site.key(hour), 1) for hour in range(HOURS)}


def test_working_in_between_ends_in_the_same_bytes(site: Site, bucket: Bucket) -> None:
    """For the keys of one day: a run for every gap between due keys would take too long for all of them."""
    of_the_day = [body for body in bucket.arriving if f"/{START:%Y/%m/%d}/" in body]
    chunk = len(of_the_day) // 4 + 1
    for start in range(0, len(of_the_day), chunk):
        site.send_all(of_the_day[start : start + chunk])
        work_in_batches(site)

    assert len(site.fetch("SELECT FROM kfm.revisions")) > 24
    assert _of_the_day(site.tree("catalog", "processed")) == _of_the_day(bucket.tree)
    assert len(site.tree("processed")) == 24
    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "succeeded"}]
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    assert site.tree("work") == {}


def test_two_workers_at_once_apply_each_key_once(site: Site, bucket: Bucket) -> None:
    keys = [site.key(hour) for hour in range(40)]
    site.send_all(bucket.messages[: 40 * PARTS])

    logs = [site.root / f"worker-{number}.log" for number in range(2)]
    workers = [_start_worker(site, log) for log in logs]

    assert [worker.wait(120) for worker in workers] == [0, 0], "\n".join(log.read_text() for log in logs)
    assert _applied(site) == {(key, 1) for key in keys}
    assert len(site.tree("processed")) == 40
    # Of each key its data, provenance, manifest and attestation; of all of them one list of software.
    assert len(site.tree("objects")) == 4 * 40 + 1
    assert site.tree("work") == {}
    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "succeeded"}]


def test_drains_at_once_record_each_event_once(site: Site, bucket: Bucket) -> None:
    site.send_all(bucket.arriving)

    with ThreadPoolExecutor(4) as threads:
        total = reduce(add, threads.map(lambda _: _drain_alone(), range(4)))

    distinct = HOURS * PARTS + REWRITTEN + ANNOUNCED
    assert total == BatchCounts(received=SENT, recorded=distinct, duplicates=SENT - distinct)
    assert site.fetch("SELECT count(*) AS events FROM kfm.inbox") == [{"events": distinct}]
    assert site.fetch("SELECT received, recorded FROM kfm.queue_totals") == [{"received": SENT, "recorded": distinct}]
    assert site.services.queue.depth().waiting == site.services.queue.depth().in_flight == 0


def _upload(site: Site) -> list[Put]:
    """Uploads every hour in parts, then the first part of some hours again with one reading less."""

    def put(hour: int, part: int, fewer: int = 0) -> Put:
        return site.put(hour, part_of_hour(hour, part, fewer), name=f"part-{part}.parquet")

    with ThreadPoolExecutor(4) as pool:
        puts = list(pool.map(lambda number: put(*divmod(number, PARTS)), range(HOURS * PARTS)))
        return puts + list(pool.map(lambda hour: put(hour, 0, fewer=1), range(REWRITTEN)))


def part_of_hour(hour: int, part: int, fewer: int = 0) -> bytes:
    table = _table_of_hour(hour)
    size = table.num_rows // PARTS
    sink = io.BytesIO()
    pq.write_table(table.slice(part * size, size - fewer), sink)
    return sink.getvalue()


@cache
def _table_of_hour(hour: int) -> pa.Table:
    return streamflow_table(START + timedelta(hours=hour))


def _as_the_world_delivers(site: Site, puts: Sequence[Put], messages: Sequence[str]) -> tuple[str, ...]:
    """Every event at least once, some wrapped by SNS, some also announced by the producer, many twice; shuffled."""
    chance = random.Random(20251204)
    latest = puts[REWRITTEN * PARTS :]
    announced = [site.auto_update_message(put) for put in chance.sample(latest, ANNOUNCED)]
    more = chance.choices([*messages, *announced], k=SENT - len(messages) - len(announced))
    arriving = [site.wrapped(body) if chance.random() < 0.5 else body for body in [*messages, *announced, *more]]
    chance.shuffle(arriving)
    return tuple(arriving)


def _start_worker(site: Site, log: Path) -> Forked:
    with log.open("wb") as output:
        return Forked(["-c", WORKER], env=site.environment, stdout=output, stderr=output)


def _drain_alone() -> BatchCounts:
    """A drain with connections of its own."""
    services = Services(load_settings())
    try:
        return drain(services, services.queue, budget_seconds=60)
    finally:
        services.close()


def _of_the_day(tree: dict[str, str]) -> dict[str, str]:
    """Items and tables of the first day's keys; their histories differ by the number of revisions."""
    day = f":{START:%Y-%m-%d}T"
    return {path: digest for path, digest in tree.items() if day in path and "/history/" not in path}


def _applied(site: Site) -> set[tuple[str, int]]:
    rows = site.fetch("SELECT key, count(*) AS times FROM kfm.wal WHERE outcome = 'APPLIED' GROUP BY key")
    return {(row["key"], row["times"]) for row in rows}

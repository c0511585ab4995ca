"""Sites to disturb, workers to strike, and what must be true in the end."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kfm_pipelines_tests.forks.process import Forked
from kfm_pipelines_tests.site import Put, Site, opened_site

PUBLISHED = ("catalog", "objects", "processed")
PATIENCE_SECONDS = 60
KILLER = "kfm_pipelines_tests.crash.killer"


@dataclass(frozen=True)
class Undisturbed:
    """What a site shows that nobody disturbed, and what it takes to open another one over the same bucket."""

    postgres_url: str
    template: str
    resources: str
    puts: tuple[Put, ...]
    tree: Mapping[str, str]

    @contextmanager
    def again(self, root: Path) -> Iterator[Site]:
        """A new site over the same objects, with the same messages in its queue."""
        settings = {"KFM_RESOURCES": self.resources, "KFM_LEASE_SECONDS": "1"}
        with opened_site(root, self.postgres_url, self.template, **settings) as site:
            for put in self.puts:
                site.send(site.s3_message(put))
            yield site


def undisturbed(root: Path, postgres_url: str, template: str, objects: Sequence[bytes | None]) -> Undisturbed:
    """Upload one object for each hour, the sample by default, and work to the end."""
    with opened_site(root, postgres_url, template) as site:
        puts = tuple(site.put(hour, data) for hour, data in enumerate(objects))
        site.work()
        return Undisturbed(postgres_url, template, site.environment["KFM_RESOURCES"], puts, site.tree(*PUBLISHED))


class Worker:
    """A worker in a process of its own, with a signal waiting for it somewhere."""

    def __init__(self, site: Site, *point: str | int) -> None:
        self._log = site.root / f"worker-{time.monotonic_ns()}.log"
        arguments = ["-m", KILLER, *map(str, point)]
        with self._log.open("wb") as log:
            self._process = Forked(arguments, env=site.environment, stdout=log, stderr=log)

    def await_stop(self) -> None:
        """Wait until SIGSTOP has struck."""
        try:
            stopped = self._process.await_stop(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker never came to its point\n{self._log.read_text()}") from None
        assert stopped, f"the worker ended before its point\n{self._log.read_text()}"

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def ended_with(self) -> int:
        try:
            return self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the worker did not end\n{self._log.read_text()}") from None

    def assert_ended_well(self) -> None:
        assert self.ended_with() == 0, self._log.read_text()


def kill_worker(site: Site, *point: str | int) -> None:
    """Run a worker until SIGKILL strikes it at the point."""
    worker = Worker(site, "SIGKILL", *point)
    assert worker.ended_with() == -signal.SIGKILL, f"the worker never came to its point\n{worker._log.read_text()}"


@contextmanager
def stopped_worker(site: Site, *point: str | int) -> Iterator[Worker]:
    """A worker that has stopped at the point and can be sent on."""
    worker = Worker(site, "SIGSTOP", *point)
    try:
        worker.await_stop()
        yield worker
    finally:
        worker.kill()


def assert_as_if_undisturbed(site: Site, tree: Mapping[str, str], keys: Sequence[str]) -> None:
    """Every key applied once, the bytes and documents those of a site that nobody disturbed, nothing left over."""
    assert applied(site) == dict.fromkeys(keys, 1)
    assert site.fetch("SELECT DISTINCT revision FROM kfm.revisions") == [{"revision": 1}]
    assert [row["key"] for row in site.fetch("SELECT key FROM kfm.ledger ORDER BY key")] == sorted(keys)
    assert_items_lead_to_their_bytes(site)
    assert site.tree(*PUBLISHED) == tree
    assert site.tree("work") == {}
    assert site.fetch("SELECT key FROM kfm.keys WHERE owner IS NOT NULL OR due_at IS NOT NULL") == []


def assert_items_lead_to_their_bytes(site: Site) -> None:
    digests = site.tree(*PUBLISHED)
    revisions = site.fetch("SELECT DISTINCT ON (key) * FROM kfm.revisions ORDER BY key, revision DESC")
    for row in revisions:
        item = f"catalog/usgs-streamflow/items/{row['key']}.json"
        assert digests[item] == row["item_hash"]
        checksum = json.loads((site.data / item).read_text())["assets"]["data"]["file:checksum"].removeprefix("1220")
        assert checksum == row["content_hash"]
        assert digests[f"objects/sha256/{checksum[:2]}/{checksum}.parquet"] == checksum
        assert digests[f"processed/usgs-streamflow/{row['key']}.parquet"] == checksum
    assert collection_members(site) == [row["key"] for row in revisions]


def applied(site: Site) -> dict[str, int]:
    """How often each key was applied, by the log."""
    rows = site.fetch("SELECT key, count(*) AS times FROM kfm.wal WHERE outcome = 'APPLIED' GROUP BY key ORDER BY key")
    return {row["key"]: row["times"] for row in rows}


def inbox_states(site: Site) -> dict[str, str]:
    rows = site.fetch("SELECT key, state FROM kfm.inbox ORDER BY key")
    return {row["key"]: row["state"] for row in rows}


def collection_members(site: Site) -> list[str]:
    """The keys that a reader finds from the collection down, page by page."""
    found, open_pages = [], [site.data / "catalog/usgs-streamflow/collection.json"]
    for page in open_pages:
        for link in json.loads(page.read_text())["links"]:
            target = page.parent / link["href"]
            if link["rel"] == "child":
                open_pages.append(target)
            elif link["rel"] == "item":
                assert target.is_file()
                found.append(target.name.removesuffix(".json"))
    return sorted(found)

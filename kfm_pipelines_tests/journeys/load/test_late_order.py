"""Under each late rule, events in any order publish the same tree and hold the same events."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.queue import Message
from kfm_pipelines.declarations import LateRule, Watermark
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines.inbox.record import record
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.watermarks.late import tick_watermarks
from kfm_pipelines.watermarks.late_lane import count_held_by_dataset, release_by_rule
from kfm_pipelines_tests.fixtures.runs.batches import publish
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site
from kfm_pipelines_tests.journeys.load.test_order import part_of_hour

pytestmark = pytest.mark.slow

HOURS = 7
STREAM = Watermark(out_of_order=timedelta(hours=1), idle_after=timedelta(hours=2), skew=timedelta(hours=1))
END = START + timedelta(days=3)


@dataclass(frozen=True)
class Bucket:
    """Two parts of each hour; the second of some hours is made hours later."""

    postgres_url: str
    template: str
    resources: str
    messages: tuple[str, ...]

    @contextmanager
    def open_site(self, root: Path, rule: LateRule) -> Iterator[Site]:
        with opened_site(root, self.postgres_url, self.template, KFM_RESOURCES=self.resources) as site:
            changed = {"late": rule, "watermark": STREAM}
            declared = {name: one.model_copy(update=changed) for name, one in site.services.datasets.items()}
            site.services.__dict__["datasets"] = Datasets(declared)
            yield site


@pytest.fixture(scope="module")
def bucket(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    postgres_url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path_factory.mktemp("late"), postgres_url, site_template) as site:
        s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})
        messages = []
        for hour in range(HOURS):
            for number in range(2):
                put = site.put(hour, part_of_hour(hour, number), name=f"part-{number}.parquet")
                delay = 4 if number and hour % 3 == 0 else 0
                made = put.window_start + timedelta(hours=delay, minutes=number)
                messages.append(site.s3_message(put, event_time=made, sequencer=f"{hour * 2 + number:016X}"))
        return Bucket(postgres_url, site_template, site.environment["KFM_RESOURCES"], tuple(messages))


@pytest.mark.parametrize(("rule", "orders"), [("patch", 2), ("replay", 3), ("quarantine", 2)])
def test_any_interleaving_publishes_the_same_tree(bucket: Bucket, tmp_path: Path, rule: LateRule, orders: int) -> None:
    ends = []
    for seed in range(orders):
        with bucket.open_site(tmp_path / f"{seed}", rule) as site:
            ends.append(_outcome(site, _arriving(bucket.messages, seed), work_in_between=seed == 1))
    in_order, *others = ends
    assert len(in_order[0]) > 2 * HOURS
    assert in_order[1] == {"quarantine": 2}.get(rule, 0)
    assert others == [in_order] * len(others)


def _arriving(messages: Sequence[str], seed: int) -> list[list[str]]:
    """In order for seed 0; shuffled, with some messages twice, for the others."""
    chance = random.Random(seed)
    arriving = [*messages, *chance.choices(messages, k=5)] if seed else list(messages)
    if seed:
        chance.shuffle(arriving)
    return [arriving[start : start + 6] for start in range(0, len(arriving), 6)]


def _outcome(
    site: Site, batches: Sequence[Sequence[str]], *, work_in_between: bool
) -> tuple[dict[str, str], int, list[dict[str, object]]]:
    """Returns the published tree, the number of held events and the watermarks."""
    services = site.services
    for number, batch in enumerate(batches):
        read = [read_message(Message(body), services.datasets) for body in batch]
        record(services.database, "q", read, services.datasets, now=END)
        tick_watermarks(services.database, services.datasets, now=END)
        if work_in_between:
            _publish_due(site, f"between-{number}")
    release_by_rule(services)
    _publish_due(site, "at-last")
    tree = {path: digest for path, digest in site.tree("catalog", "processed").items() if "/history/" not in path}
    marks = site.fetch("SELECT dataset, partition, watermark FROM kfm.checkpoints")
    return tree, count_held_by_dataset(services.database).get("usgs/streamflow", 0), marks


def _publish_due(site: Site, run_id: str) -> None:
    keys = [row["key"] for row in site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL ORDER BY key")]
    publish(site.services, site.dataset, keys, run_id)
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL") == []

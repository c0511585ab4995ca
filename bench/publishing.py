"""What it costs to publish one more key, all its documents and the collection's included, as the collection grows.

The items that are there already are rows in the database and files in the catalog, made from one that was published,
and their pages are rows. What is timed are real keys through the real stages, each with its collection written after
it.
"""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from urllib.parse import unquote, urlsplit

from bench.measurement import Measurement
from bench.stack import own_stack
from bench.stages import through_all_stages
from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stores import Layout

SIZES = (100, 10_000, 50_000, 500_000)
LINKS = 50_000  # of one file; ext4 allows 65,000
TIMED_KEYS = 25
WARM_UP_KEYS = 5
START = datetime(2025, 1, 1, tzinfo=UTC)


def publish_cost_as_the_collection_grows(folder: Path) -> list[Measurement]:
    with own_stack(folder, KFM_BATCH_SIZE="1") as services:
        dataset = services.datasets["usgs/streamflow"]
        keys = _new_keys(services, dataset)
        model = next(keys)
        for key in (model, *(next(keys) for _ in range(WARM_UP_KEYS))):  # all is imported and connected after this
            _seconds(services, dataset, key)
        measured: list[Measurement] = []
        for size in SIZES:
            _fill(services, dataset, model, size)
            milliseconds = 1000 * median(_seconds(services, dataset, next(keys)) for _ in range(TIMED_KEYS))
            baseline = measured[0].value if measured else milliseconds
            measured.append(Measurement(f"publish_a_key_among_{size}_items", milliseconds, "ms/key", baseline))
    return measured


def _new_keys(services: Services, dataset: Dataset) -> Iterator[str]:
    """Keys that are due, one hour after the other."""
    count = 1 + WARM_UP_KEYS + TIMED_KEYS * len(SIZES)
    keys = emit_samples(services, SampleRequest(dataset.dataset, START, count), Topic(services.settings.topic), _ignore)
    deadline = time.monotonic() + 60
    while _known(services, keys) < count:
        drain_all(services, budget_seconds=5)
        if time.monotonic() > deadline:
            raise SystemExit("the messages did not come")
    return iter(keys)


def _known(services: Services, keys: list[str]) -> int:
    rows = services.database.fetch("SELECT count(*) AS n FROM kfm.keys WHERE key = ANY(%(keys)s)", {"keys": keys})
    return int(rows[0]["n"])


def _seconds(services: Services, dataset: Dataset, key: str) -> float:
    started = time.perf_counter()
    through_all_stages(Batch(services, dataset, f"bench {key}"), key)
    if problems := refresh_stale_collections(services):
        raise SystemExit(problems[0])
    return time.perf_counter() - started


def _fill(services: Services, dataset: Dataset, model: str, size: int) -> None:
    """As many items as that, of the hours before the first; and the collection as it is with them."""
    parameters = {"model": model, "dataset": dataset.dataset, "start": START, "size": size}
    rows = services.database.fetch(
        """
        WITH published AS (
            SELECT count(*) AS n FROM kfm.keys k WHERE dataset = %(dataset)s AND window_start >= %(start)s
              AND EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key)
        ), hours AS (
            SELECT %(start)s - n * interval '1 hour' AS at
            FROM generate_series(1, %(size)s - (SELECT n FROM published)) n
        )
        INSERT INTO kfm.keys (key, dataset, window_start, window_end)
        SELECT regexp_replace(%(model)s, '[^:]+(:[^:]+)$', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24"Z"\\1')),
               %(dataset)s, at, at + interval '1 hour'
        FROM hours ORDER BY at DESC
        ON CONFLICT DO NOTHING RETURNING key
        """,
        parameters,
    )
    added = [row["key"] for row in rows]
    services.database.execute(
        """
        INSERT INTO kfm.revisions (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes,
                                   bbox, run_id)
        SELECT k.key, 1, 1, m.inputs_hash, m.fingerprint, m.content_hash, m.item_hash, m.rows, m.bytes, m.bbox, m.run_id
        FROM unnest(%(added)s::text[]) AS k(key), kfm.revisions m WHERE m.key = %(model)s
        """,
        {**parameters, "added": added},
    )
    _copy_item(services, Layout(dataset.pipeline), model, added)
    _record_pages(services, parameters)


def _copy_item(services: Services, layout: Layout, model: str, added: list[str]) -> None:
    root = Path(unquote(urlsplit(services.store.url).path))
    for start in range(0, len(added), LINKS):
        first, *others = (root / layout.item(key) for key in added[start : start + LINKS])
        first.write_bytes((root / layout.item(model)).read_bytes())
        for path in others:
            os.link(first, path)


def _record_pages(services: Services, parameters: dict[str, object]) -> None:
    """The pages that hold only made-up items count as written: a publication reads their rows, but not their files."""
    with services.database.transaction() as connection:
        connection.execute(
            """
            INSERT INTO kfm.collection_pages AS p (dataset, page, changed, written, items, rows, bytes, starts, ends,
                                                   bbox, versions)
            SELECT dataset, kfm.page_of(key), 1, 1, count(*), sum(rows), sum(bytes), min(window_start), max(window_end),
                   min(bbox), ARRAY['v1-0-0']
            FROM kfm.keys JOIN kfm.revisions USING (key) WHERE dataset = %(dataset)s AND window_start < %(start)s
            GROUP BY 1, 2
            ON CONFLICT (dataset, page) DO UPDATE
            SET items = excluded.items, rows = excluded.rows, bytes = excluded.bytes, starts = excluded.starts
            """,
            parameters,
        )
        connection.execute("ANALYZE kfm.keys, kfm.revisions, kfm.collection_pages")


def _ignore(_: int) -> None:
    """No progress bar."""

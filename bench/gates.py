"""How much of a key's way from compute to publish the gates take, on a million rows of it.

The key goes through the real stages, one after the other, as in a run; what it came from and where it goes are the
embedded S3 and a folder. Imports are done before the clock starts.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.local.samples import SAMPLES
from kfm_pipelines.messaging.clients import s3_client
from kfm_pipelines.operations import batch as stages
from kfm_pipelines.operations import judging, release_gates
from kfm_pipelines.operations.batch import Batch
from kfm_pipelines.operations.drain import drain_all
from kfm_pipelines.operations.handoff import Handoff
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stores import Layout

ROWS = 1_000_000
HOUR = datetime(2025, 1, 1, tzinfo=UTC)
TABLE_GATES = (judging, ("judge_schema", "judge_quality", "judge_suite"))
RELEASE_GATES = (release_gates, ("judge_integrity", "judge_care", "judge_governance"))


def gates_share(folder: Path) -> list[Measurement]:
    """Of an open dataset: all gates together, with reading what they judge and recording what they say; and each."""
    with own_stack(folder) as workshop:
        _publish(workshop, HOUR, rows=1000)  # everything is imported and connected after this
        total, spent = _publish(workshop, HOUR + timedelta(hours=1), rows=ROWS)
    together = spent.pop("judge_table") + spent.pop("judge_release")
    each = [Measurement(f"share_of_{name.removeprefix('judge_')}_gate", s, "s", total) for name, s in spent.items()]
    return [Measurement("gates_share_of_a_million_rows", together, "s", total), *each]


def _publish(workshop: Workshop, hour: datetime, rows: int) -> tuple[float, dict[str, float]]:
    dataset = workshop.datasets["usgs/streamflow"]
    _upload(dataset, hour, rows)
    drain_all(workshop, budget_seconds=30)
    [row] = workshop.database.fetch("SELECT key FROM kfm.keys WHERE window_start = %(hour)s", {"hour": hour})
    spent: dict[str, float] = {}
    started = time.perf_counter()
    whole = _clocked(spent, stages, ("judge_table", "judge_release"))
    with whole, _clocked(spent, *TABLE_GATES), _clocked(spent, *RELEASE_GATES):
        _through_all_stages(Batch(workshop, dataset, f"bench {hour}"), workshop, dataset, row["key"])
    return time.perf_counter() - started, spent


def _through_all_stages(batch: Batch, workshop: Workshop, dataset: Dataset, key: str) -> None:
    layout = Layout(dataset.pipeline)

    def kept(handoffs: Iterable[Handoff], path: Callable[[str, int], str]) -> Iterator[Handoff]:
        for handoff in handoffs:
            workshop.store.write(path(key, handoff.claim.epoch), handoff.data)
            yield handoff

    computed = list(kept(batch.compute([key]), layout.computed))
    batch.validate(list(kept(batch.mask(computed), layout.masked)))
    batch.stage([key])
    if key not in batch.publish([key]):
        raise SystemExit(f"{key} was not published: {batch.notes}")


@contextmanager
def _clocked(spent: dict[str, float], module: Any, names: Iterable[str]) -> Iterator[None]:
    """Count the time inside these functions of a module; a generator's until it is used up."""
    patches = [patch.object(module, name, _counting(spent, name, getattr(module, name))) for name in names]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def _counting(spent: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        result = list(result) if isinstance(result, Iterator) else result
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - started
        return result

    return counted


def _upload(dataset: Dataset, hour: datetime, rows: int) -> None:
    """The sample of the hour, with so many gauges that it has this many rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    object_key, sample = SAMPLES["usgs/streamflow"].make(hour)
    table = pq.read_table(io.BytesIO(sample))
    table = table.take(pa.array(np.arange(rows) % table.num_rows))
    site = table.schema.get_field_index("site_no")
    numbers = pa.array(np.arange(10**14, 10**14 + rows)).cast(pa.string())
    shuffled = np.random.default_rng(1).permutation(rows)
    sink = io.BytesIO()
    pq.write_table(table.set_column(site, table.schema.field(site), numbers).take(pa.array(shuffled)), sink)
    s3_client().put_object(Bucket=dataset.input.bucket, Key=object_key, Body=sink.getvalue())

"""How much of a key's way from compute to publish the gates take, on a million rows of it.

The key goes through the real stages, one after the other, as in a run; what it came from and where it goes are the
embedded S3 and a folder. Imports are done before the clock starts.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.measurement import Measurement
from bench.stack import own_stack
from bench.stages import through_all_stages
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.services import Services
from kfm_pipelines.stages import batch as stages
from kfm_pipelines.stages import mask
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.validate import release_gates, table_gates

ROWS = 1_000_000
HOUR = datetime(2025, 1, 1, tzinfo=UTC)
TABLE_GATES = (table_gates, ("judge_schema", "judge_quality", "judge_suite"))
RELEASE_GATES = (release_gates, ("judge_integrity", "judge_care", "judge_governance"))
WHOLE = (stages, ("judge_table", "judge_release"))
BEFORE_MASKING = (mask, ("judge_before_masking",))  # the schema of what is to be masked is judged too


def gates_share(folder: Path) -> list[Measurement]:
    """Of an open dataset: all gates together, with reading what they judge and recording what they say; and each."""
    with own_stack(folder) as services:
        dataset = services.datasets["usgs/streamflow"]
        _publish(services, dataset, HOUR, _streamflow(HOUR, rows=1000))  # all is imported and connected after this
        hour = HOUR + timedelta(hours=1)
        total, spent = _publish(services, dataset, hour, _streamflow(hour, rows=ROWS))
    return _shares("rows", total, spent)


def gates_share_with_suite(folder: Path) -> list[Measurement]:
    """The same with the suite that is meant for the weekly scan before publication."""
    with own_stack(folder) as services:
        declared = services.datasets["usgs/streamflow"]
        quality = declared.quality.model_copy(update={"suite": declared.quality.deep_suite})
        dataset = declared.model_copy(update={"quality": quality})
        _publish(services, dataset, HOUR, _streamflow(HOUR, rows=1000))
        hour = HOUR + timedelta(hours=1)
        total, spent = _publish(services, dataset, hour, _streamflow(hour, rows=ROWS))
    return _shares("rows_with_suite", total, spent)


def gates_share_of_masked(folder: Path) -> list[Measurement]:
    """Of a dataset that is masked, up to where it waits for its reviewer: most of it is the verifier's."""
    with own_stack(folder, KFM_CARE_KEY_HERITAGE_2026="a secret for nothing but benches") as services:
        dataset = services.datasets["heritage/sites"]
        _publish(services, dataset, HOUR, _register(HOUR, rows=1000))
        month = HOUR + timedelta(days=31)
        total, spent = _publish(services, dataset, month, _register(month, rows=ROWS))
    return _shares("masked_rows", total, spent)


def _shares(what: str, total: float, spent: dict[str, float]) -> list[Measurement]:
    together = sum(spent.pop(name, 0.0) for _, names in (WHOLE, BEFORE_MASKING) for name in names)
    each = [
        Measurement(f"share_of_{name.removeprefix('judge_')}_gate_of_{what}", seconds, "s", total)
        for name, seconds in spent.items()
    ]
    return [Measurement(f"gates_share_of_a_million_{what}", together, "s", total), *each]


def _publish(
    services: Services, dataset: Dataset, start: datetime, upload: tuple[str, bytes]
) -> tuple[float, dict[str, float]]:
    object_key, data = upload
    s3_client().put_object(Bucket=dataset.input.bucket, Key=object_key, Body=data)
    drain_all(services, budget_seconds=30)
    [row] = services.database.fetch("SELECT key FROM kfm.keys WHERE window_start = %(start)s", {"start": start})
    spent: dict[str, float] = {}
    started = time.perf_counter()
    with ExitStack() as clocks:
        for module, names in (WHOLE, BEFORE_MASKING, TABLE_GATES, RELEASE_GATES):
            clocks.enter_context(_clocked(spent, module, names))
        through_all_stages(Batch(services, dataset, f"bench {start}"), row["key"])
    return time.perf_counter() - started, spent


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


def _streamflow(hour: datetime, rows: int) -> tuple[str, bytes]:
    """The sample of the hour, with so many gauges that it has this many rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    object_key, sample = SAMPLES["usgs/streamflow"].make(hour)
    table = pq.read_table(io.BytesIO(sample))
    table = table.take(pa.array(np.arange(rows) % table.num_rows))
    numbers = pa.array(np.arange(10**14, 10**14 + rows)).cast(pa.string())
    return object_key, _written(_with(table, site_no=numbers))


def _register(month: datetime, rows: int) -> tuple[str, bytes]:
    """The sample of the month, with this many sites in all of Kansas but its northeastern corner, each with a number, a
    name and a place of its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyproj import Proj

    object_key, sample = SAMPLES["heritage/sites"].make(month)
    table = pq.read_table(io.BytesIO(sample))
    table = table.take(pa.array(np.arange(rows) % table.num_rows))
    rng = np.random.default_rng(1)
    latitudes, longitudes = rng.uniform(37.0, 40.0, rows), rng.uniform(-102.0, -95.3, rows)
    eastings, northings = Proj("EPSG:32614")(longitudes, latitudes)
    numbers = pa.array(np.arange(10**8, 10**8 + rows)).cast(pa.string())
    own = {
        "site_id": pc.binary_join_element_wise("SYN", numbers, "-"),
        "site_name": pc.binary_join_element_wise("Synthetic site", numbers, " "),
        "latitude": pa.array(latitudes),
        "longitude": pa.array(longitudes),
        "easting": pa.array(eastings),
        "northing": pa.array(northings),
    }
    return object_key, _written(_with(table, **own))


def _with(table: Any, **columns: Any) -> Any:
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), values)
    return table


def _written(table: Any) -> bytes:
    """In no order: a key's way begins with sorting."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table.take(pa.array(np.random.default_rng(1).permutation(table.num_rows))), sink)
    return sink.getvalue()

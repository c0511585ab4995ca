"""What sinks cost beside the run that publishes, and an Iceberg table when one key of a large one is revised."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from bench.measurement import Measurement
from bench.price import KEYS, emit_hours, run_our_pipeline
from bench.stack import own_stack
from kfm_pipelines.cli.main import exempt_loaded_objects, quiet_libraries
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.services import Services
from kfm_pipelines.sinks import assets
from kfm_pipelines.sinks.table import maintain, sink
from kfm_pipelines.sinks.table.commit import commit_to, writing
from kfm_pipelines.sinks.table.maintain import thin_out
from kfm_pipelines.sinks.table.schema import KEY, REVISION, VERSION, WINDOW, create_table
from kfm_pipelines.sinks.table.tables import Purpose
from kfm_pipelines.sinks.table.warehouse import open_catalog, table_folder, table_name, warehouse_root
from kfm_pipelines.state.transactions import KeyFacts

START = datetime(2024, 1, 1, tzinfo=UTC)
ROUNDS = 3
REVISED_ROWS, LARGE_KEYS = 10_000, 100
SMALL_ROWS, FEW_KEYS, MANY_KEYS, KEYS_PER_COMMIT = 68, 1_000, 100_000, 200


def share_of_the_sinks(folder: Path) -> Measurement:
    """Time that a run over 200 keys takes to write and check table and graph, against the whole run."""
    quiet_libraries()
    spent = [0.0]

    def timed(part: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return part(*arguments)
            finally:
                spent[0] += time.perf_counter() - began

        return run

    for name in ("_try_to_write", "_compare"):
        setattr(assets, name, timed(getattr(assets, name)))
    shares = []
    with own_stack(folder, True, KFM_BATCH_SIZE=str(KEYS), KFM_GRAPH="on") as services:
        if not services.settings.graph_url:
            raise SystemExit("the graph server is not installed")
        definitions = build_definitions(services.settings.resources)
        exempt_loaded_objects()
        for number in range(ROUNDS + 1):
            emit_hours(services, number)
            spent[0], began = 0.0, time.perf_counter()
            run_our_pipeline(services, definitions)
            shares.append((spent[0], time.perf_counter() - began))
    own, whole = (median(each) for each in zip(*shares[1:], strict=True))
    return Measurement("share_of_the_sinks", 1000 * own / KEYS, "ms/key", 1000 * whole / KEYS)


def upsert_into_a_million_rows(folder: Path) -> Measurement:
    """A key of 10,000 rows is revised in a table of 1,000,000, put together in few files; against appending 10,000 rows
    by the library alone."""
    with own_stack(folder, True) as services:
        dataset = services.datasets["usgs/streamflow"]
        table = _new_table(services, dataset)
        for first in range(0, LARGE_KEYS, 10):
            table = _write(services, dataset, table, range(first, first + 10), REVISED_ROWS)
        maintain.SMALL_FILES = 2
        maintain.maintain(services, dataset)
        table = table.refresh()
        revised, appended = [], []
        for number in range(ROUNDS):
            rows = _rows([LARGE_KEYS + number], REVISED_ROWS)
            began = time.perf_counter()
            table.append(rows)
            appended.append(time.perf_counter() - began)
            began = time.perf_counter()
            table = _write(services, dataset, table.refresh(), [50 + number], REVISED_ROWS)
            revised.append(time.perf_counter() - began)
    return Measurement("upsert_into_a_million_rows", median(revised), "s", median(appended))


def table_commits_as_the_table_grows(folder: Path) -> Measurement:
    """A commit of 200 keys into a table that has 100,000, against one that has 1,000."""
    with own_stack(folder, True) as services:
        dataset = services.datasets["usgs/streamflow"]
        table, seconds = _new_table(services, dataset), []
        for first in range(0, MANY_KEYS, KEYS_PER_COMMIT):
            began = time.perf_counter()
            table = _write(services, dataset, table, range(first, first + KEYS_PER_COMMIT), SMALL_ROWS)
            seconds.append(time.perf_counter() - began)
            thin_out(table)
            if first % (FEW_KEYS * 10) == 0:
                maintain.maintain(services, dataset)  # as each night
                table = table.refresh()
    commits = FEW_KEYS // KEYS_PER_COMMIT
    few, many = seconds[commits : 2 * commits], seconds[-2 * commits :]
    return Measurement("table_commits_as_the_table_grows", median(many), "s", median(few))


def _new_table(services: Services, dataset: Dataset) -> Table:
    location = f"{warehouse_root(services)}/{table_folder(dataset.pipeline)}"
    table = create_table(open_catalog(services), dataset, table_name(dataset), location)
    with table.update_schema() as update:
        update.union_by_name(_rows([0], 1).schema)
    return table.refresh()


def _write(services: Services, dataset: Dataset, table: Table, numbers: Any, rows_per_key: int) -> Table:
    """Commits keys as a sink does, without a catalog to read them from."""
    facts: Mapping[str, KeyFacts] = {
        _key(number): KeyFacts(_key(number), (_start(number), _start(number + 1)), None, None, {}, ())
        for number in numbers
    }
    listing = {"schema_version": 1, "keys": [{"key": key} for key in facts]}
    write_rows = partial(sink._write, facts, _rows(numbers, rows_per_key), listing)
    with writing(services, dataset):
        return commit_to(services, dataset, table, Purpose("bench", facts), write_rows)


def _rows(numbers: Any, rows_per_key: int) -> pa.Table:
    count = len(numbers) * rows_per_key
    keys = [_key(number) for number in numbers for _ in range(rows_per_key)]
    starts = [_start(number) for number in numbers for _ in range(rows_per_key)]
    own = pa.schema(
        [
            pa.field(KEY, pa.string(), nullable=False),
            pa.field(REVISION, pa.int32(), nullable=False),
            pa.field(VERSION, pa.string(), nullable=False),
            pa.field(WINDOW, pa.timestamp("us", "UTC"), nullable=False),
            pa.field("site_no", pa.string()),
            pa.field("discharge_cfs", pa.float64()),
        ]
    )
    values = [f"{number % 97:08d}" for number in range(count)]
    columns = [keys, [1] * count, ["v1"] * count, starts, values, np.random.default_rng(7).random(count)]
    return pa.Table.from_arrays(
        [pa.array(one, field.type) for one, field in zip(columns, own, strict=True)], schema=own
    )


def _key(number: int) -> str:
    return f"usgs-streamflow:kansas_statewide:none:{_start(number):%Y-%m-%dT%HZ}:v1-0-0"


def _start(number: int) -> datetime:
    return START + timedelta(hours=number)

"""A million points masked, half of them generalised and half of them grouped, against bare H3 cell assignment of the
same points. What masking adds has to stay below what the cells themselves take."""

import re
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from bench.measurement import Measurement
from kfm_pipelines.care.masks import mask_table
from kfm_pipelines.care.masks.cells import cells_of
from kfm_pipelines.care.policies import Policy, load_policy
from kfm_pipelines.care.rules import ClassRules, Group
from kfm_pipelines.declarations.dataset import load_dataset
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.declarations import without_geometry

POINTS = 1_000_000
ROUNDS = 5
RESOLUTION = 5
SECRET = b"a secret for nothing but benches"
MIB = 1024 * 1024

RESOURCES = shipped_path("resources")
# Its points are in two columns; the geometry is derived from them by another stage.
DATASET = without_geometry(load_dataset(RESOURCES / "datasets" / "heritage-sites.yaml"))


def masking_against_bare_cells(_: Path) -> Measurement:
    """Points a second. The best of a few rounds each, taken in turns."""
    table, policy = _register(), _policy()
    longitudes, latitudes = table.column("longitude").to_numpy(), table.column("latitude").to_numpy()
    bare, masked = [], []
    for _round in range(ROUNDS):
        bare.append(_seconds(lambda: cells_of(longitudes, latitudes, RESOLUTION)))
        masked.append(_seconds(lambda: mask_table(table, DATASET, policy, SECRET)))
    return Measurement("masking_against_bare_cells", POINTS / min(masked), "points/s", POINTS / min(bare))


def masking_memory(_: Path) -> Measurement:
    """How much memory masking takes at its peak, against the size of the table."""
    table, policy = _register(), _policy()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _memory("VmRSS")
    mask_table(table, DATASET, policy, SECRET)
    return Measurement("masking_memory", _memory("VmHWM") - before, "MiB", table.nbytes / MIB)


def _policy() -> Policy:
    """The shipped one, with a single resolution for each class, so that every point gets one cell here and there."""
    policy = load_policy(RESOURCES, "heritage-sites")
    grouped = ClassRules(point=Group(method="group", resolutions=[RESOLUTION]))
    return policy.model_copy(update={"classes": {**policy.classes, "restricted": grouped}})


def _register() -> Any:
    """Points all over Kansas, sorted by their ids as they are when they get to the masks."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(1)
    number = pa.array(np.arange(10**8, 10**8 + POINTS)).cast(pa.string())
    words = pa.array(["archaic", "woodland", "historic", "generalised", "restricted", "invented"])
    columns = {
        "site_id": number,
        "sensitivity": words.take(pa.array(3 + np.arange(POINTS) % 2)),
        "latitude": pa.array(rng.uniform(37.0, 40.0, POINTS)),
        "longitude": pa.array(rng.uniform(-102.0, -94.6, POINTS)),
        "easting": pa.array(rng.uniform(0, 1, POINTS)),
        "northing": pa.array(rng.uniform(0, 1, POINTS)),
        "period": words.take(pa.array(rng.integers(0, 3, POINTS))),
        "condition": words.take(pa.array(rng.integers(0, 3, POINTS))),
        "surveyed_on": pa.repeat(pa.scalar(date(2020, 1, 1)), POINTS),
    }
    others = pa.repeat(pa.scalar("invented"), POINTS)
    return pa.table({column.name: columns.get(column.name, others) for column in DATASET.table.columns})


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _memory(name: str) -> float:
    """In MiB, as the kernel tells it of this process."""
    [kilobytes] = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) / 1024

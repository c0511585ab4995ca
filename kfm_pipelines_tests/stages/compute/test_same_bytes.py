"""Every shipped sample gives the same bytes on machines that differ in memory, threads, time zone and order of sets."""

import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from kfm_pipelines.declarations.areas import load_area
from kfm_pipelines.parquet.parquet import write_published
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.compute.process import process
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines_tests.fixtures.events.notices import declared

START = datetime(2025, 12, 4, 3, tzinfo=UTC)
ROOT = Path(__file__).parents[3]
SMALL = {
    "GDAL_CACHEMAX": "1", "GDAL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "ARROW_NUM_THREADS": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "POSIX", "PYTHONHASHSEED": "1",
}  # fmt: skip
LARGE = {
    "GDAL_CACHEMAX": "512", "GDAL_NUM_THREADS": "ALL_CPUS", "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4",
    "ARROW_NUM_THREADS": "4", "TZ": "America/Chicago", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4711",
}  # fmt: skip


def digests() -> dict[str, dict[str, str]]:
    """Digests of all that is made of each sample: of the table as it is published, and of the files beside it."""
    found = {}
    for name, sample in SAMPLES.items():
        dataset = declared()[name]
        [start] = sample.windows(START, 1)
        objects = [SourceObject(f"s3://b/{key}", data) for key, data in sample.objects(start).items()]
        made = process(dataset, objects, partial(load_area, shipped_path("resources"), dataset.key.aoi))
        table = write_published(made.table, dataset.table, boxes=dataset.processor == "vector")
        files = {"table": table} | {file.name: file.data for file in made.attachments.files}
        found[name] = {what: hashlib.sha256(data).hexdigest() for what, data in files.items()}
    return found


def _printed_by_another_process(environment: dict[str, str]) -> "subprocess.Popen[str]":
    code = f"import json; from {__name__} import digests; print(json.dumps(digests()))"
    variables = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code], env=variables, cwd="/", stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_machine() -> None:
    processes = [_printed_by_another_process(one) for one in (SMALL, LARGE)]
    one, other = (json.loads(process.communicate(timeout=300)[0]) for process in processes)
    assert one == other
    assert one.keys() == SAMPLES.keys()
    assert all({"raster", "thumbnail"} <= one[name].keys() for name in ("noaa/nexrad-level3", "usgs/landsat-ndvi"))

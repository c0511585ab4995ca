"""A radar mosaic of 24.5 million pixels: read, clipped to Kansas, written as a Cloud-Optimised GeoTIFF with a picture,
and counted into H3 cells, against rasterio reading it and writing it as such a file."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measurement import Measurement
from kfm_pipelines.declarations.areas import load_area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.compute.process import process
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines_tests.fixtures.rasters.invented import geotiff, raster_dataset
from kfm_pipelines_tests.fixtures.real_files import DATA

ROUNDS = 3
MEMORY_MIB = 1024.0
COLUMNS, ROWS = 7000, 3500
BAND = {"name": "reflectivity", "unit": "dBZ", "description": "Composite reflectivity", "sentinels": [-99, -999]}
GRID = {
    "crs": "EPSG:4326", "west": -130.0, "north": 55.0, "pixel_width": 0.01, "pixel_height": 0.01,
    "columns": COLUMNS, "rows": ROWS,
}  # fmt: skip


def raster_against_rasterio(folder: Path) -> list[Measurement]:
    """Seconds, the best of a few rounds each, taken in turns; and the memory of the whole process at its peak."""
    source = _mosaic(folder)
    dataset = raster_dataset(
        format="grib2" if source.suffix == ".grib2" else "geotiff", h3_res="6", bands=[BAND], grid=GRID
    )
    _ours(source, dataset)  # loads the libraries
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    ours = [_seconds(lambda: _ours(source, dataset)) for _ in range(ROUNDS)]
    peak = _peak()
    bare = [_seconds(lambda: _bare(source, folder / "bare.tif")) for _ in range(ROUNDS)]
    return [
        Measurement("raster_against_rasterio", min(ours), "s", min(bare)),
        Measurement("raster_memory", peak, "MiB", MEMORY_MIB),
    ]


def _ours(source: Path, dataset: Dataset) -> None:
    area = load_area(shipped_path("resources"), "kansas_statewide")
    computed = process(dataset, [SourceObject(f"s3://bench/{source.name}", source.read_bytes())], lambda: area)
    assert computed.table.num_rows > 50


def _bare(source: Path, target: Path) -> None:
    import rasterio

    with rasterio.open(source) as dataset:
        values = dataset.read(1).astype(np.float32)
        profile = {"crs": dataset.crs, "transform": dataset.transform, "width": COLUMNS, "height": ROWS, "count": 1}
    with rasterio.open(target, "w", driver="COG", dtype="float32", compress="DEFLATE", nodata=-999, **profile) as out:
        out.write(values, 1)


def _mosaic(folder: Path) -> Path:
    """The real one where it is on the machine; otherwise one of the same size, a twentieth of it rain."""
    real = sorted(DATA.glob("MRMS_*.grib2"))
    if real:
        return real[0]
    noise = np.random.default_rng(1)
    values = np.full((ROWS, COLUMNS), -99, np.float32)
    for row, column in zip(noise.integers(0, ROWS, 500), noise.integers(0, COLUMNS, 500), strict=True):
        values[row : row + 50, column : column + 50] = (
            noise.integers(0, 120, (50, 50))[: ROWS - row, : COLUMNS - column] / 2
        )
    path = folder / "mosaic.tif"
    path.write_bytes(geotiff(values, west=-130.0, north=55.0, pixel=0.01, compress="deflate"))
    return path


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _peak() -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0

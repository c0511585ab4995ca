"""Radar reflectivity in the form of MRMS: GRIB2, packed by gzip, a hundredth of a degree; the storms are invented."""

import gzip
from datetime import datetime

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.sample import seeded_random

PRODUCT = "MergedReflectivityQCComposite_00.50"
WEST, NORTH, PIXEL = -102.2, 40.1, 0.01  # Kansas and a little around it, not the whole country
COLUMNS, ROWS = 780, 320
NOTHING, NOT_COVERED = -99.0, -999.0  # no echo, and no radar
STORMS = 6


def mrms_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    """Returns the composite of the second minute of an hour."""
    hour = window_of(window_start, "hour").start
    name = f"MRMS_{PRODUCT}_{hour:%Y%m%d}-{hour:%H}0240.grib2.gz"
    return f"CONUS/{PRODUCT}/{hour:%Y%m%d}/{name}", gzip.compress(_grib(hour, seed), mtime=0)


def _grib(hour: datetime, seed: int) -> bytes:
    import numpy as np
    import rasterio.shutil
    from affine import Affine
    from rasterio.io import MemoryFile

    down, across = np.mgrid[0:ROWS, 0:COLUMNS]
    values = np.full((ROWS, COLUMNS), NOTHING, np.float32)
    for storm in range(STORMS):
        chance = seeded_random(seed, "storm", storm, hour.isoformat())
        row, column = chance.uniform(0, ROWS), chance.uniform(0, COLUMNS)
        size, peak = chance.uniform(8, 40), chance.uniform(25, 62)
        echo = peak - 25 * ((down - row) ** 2 + (across - column) ** 2) / size**2
        values = np.where(echo > 0, np.maximum(values, np.round(echo, 1)), values)
    values[:, -10:] = NOT_COVERED
    shape = {"width": COLUMNS, "height": ROWS, "count": 1, "dtype": "float32", "crs": "EPSG:4326"}
    with MemoryFile() as plain, MemoryFile(ext=".grib2") as packed:
        with plain.open(driver="GTiff", transform=Affine(PIXEL, 0, WEST, 0, -PIXEL, NORTH), **shape) as out:
            out.write(values.astype(np.float32), 1)
        options = {"DATA_ENCODING": "COMPLEX_PACKING", "DECIMAL_SCALE_FACTOR": "1"}
        rasterio.shutil.copy(plain.name, packed.name, driver="GRIB", **options)
        return bytes(packed.read())

"""Statistics of each band, and the band as STAC describes it (common metadata of 1.1, raster extension 2.0)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.raster.cog import row_areas
from kfm_pipelines.raster.grid import PixelGrid, Pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIGITS = 7  # of means: a 32-bit float has no more, and processors add in different orders


@dataclass(frozen=True, slots=True)
class BandStatistics:
    """None where no pixel has a value."""

    valid_pixels: int
    nodata_pixels: int
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    stddev: float | None = None


def statistics_of(pixels: Pixels) -> list[BandStatistics]:
    return [_statistics_of_band(values) for values in pixels.values]


def band_fields(bands: Sequence[Band], nodata: float, pixels: Pixels) -> list[dict[str, Any]]:
    """Returns the `bands` of an asset."""
    resolution = spatial_resolution(pixels.grid)
    return [
        {
            "name": band.name,
            "description": band.description,
            "data_type": "float32",
            "nodata": nodata,
            "unit": band.unit,
            "statistics": _statistics_fields(found),
            "raster:sampling": "area",
            "raster:spatial_resolution": resolution,
        }
        for band, found in zip(bands, statistics_of(pixels), strict=True)
    ]


def spatial_resolution(grid: PixelGrid) -> float:
    """Returns the length in metres of a square as large as a pixel in the middle row."""
    area = float(row_areas(grid)[grid.height // 2])
    per_unit = 1.0 if grid.crs.is_geographic else float(grid.crs.linear_units_factor[1])
    return _rounded(math.sqrt(area) * per_unit)


def _statistics_of_band(values: "NDArray[np.float32]") -> BandStatistics:
    import numpy as np

    valid = values[~np.isnan(values)].astype(np.float64)
    missing = values.size - valid.size
    if not valid.size:
        return BandStatistics(0, missing)
    least, most = float(valid.min()), float(valid.max())
    return BandStatistics(valid.size, missing, least, most, _rounded(float(valid.mean())), _rounded(float(valid.std())))


def _statistics_fields(found: BandStatistics) -> dict[str, float]:
    total = found.valid_pixels + found.nodata_pixels
    stated = {"minimum": found.min, "maximum": found.max, "mean": found.mean, "stddev": found.stddev}
    return {
        **{name: value for name, value in stated.items() if value is not None},
        "count": found.valid_pixels,
        "valid_percent": _rounded(100 * found.valid_pixels / total),
    }


def _rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")

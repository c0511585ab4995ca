"""The values of declared bands, read window by window: nodata and sentinels become NaN, scales are applied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.inputs import Limits
from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.grid import PixelGrid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rasterio.io import DatasetReader
    from rasterio.windows import Window

PIXELS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class BandSource:
    """Where a declared band is: a raster that is open, and the number of a band in it."""

    band: Band
    dataset: "DatasetReader"
    number: int
    valid: tuple[float, float] | None = None  # the numbers that are measurements, before any scale


def refuse_too_large(sources: Sequence[BandSource], limits: Limits, name: str) -> None:
    """Raises InputUnreadable before anything is allocated that the header of a small file may ask for."""
    import numpy as np
    from rasterio.enums import Interleaving

    for one in sources:
        dataset, place = one.dataset, one.number - 1
        limits.refuse(name, pixels=dataset.width * dataset.height)
        if dataset.dtypes[place].startswith("complex"):
            raise InputUnreadable(f"{name} has complex numbers in band {one.number}, which are not published")
        rows, columns = dataset.block_shapes[place]
        together = dataset.count if dataset.interleaving is Interleaving.pixel else 1
        block = rows * columns * together * np.dtype(dataset.dtypes[place]).itemsize
        limits.refuse(name, unpacked_bytes=block)


def read_bands(sources: Sequence[BandSource], window: "Window", limits: Limits, name: str) -> "NDArray[np.float32]":
    import numpy as np

    width, height = int(window.width), int(window.height)
    limits.refuse(name, pixels=width * height * len(sources))
    values = np.empty((len(sources), height, width), np.float32)
    rows = max(1, PIXELS_AT_ONCE // width)
    for source, band in zip(sources, values, strict=True):
        for top in range(0, height, rows):
            part = _rows_of(window, top, min(rows, height - top))
            band[top : top + rows] = _read_part(source, part, name)
    return values


def measured(
    raw: "NDArray[Any]", missing: "NDArray[np.bool_]", band: Band, name: str, scale: float = 1.0, offset: float = 0.0
) -> "NDArray[np.float32]":
    """Applies the scale of the file, which GDAL does not, and then the one that is declared. Raises InputUnreadable if
    that gives numbers that are not published."""
    import numpy as np

    if not (np.isfinite(scale) and np.isfinite(offset) and scale):
        raise InputUnreadable(f"{name} is packed with a scale or an offset that is not a number")
    values = raw.astype(np.float64)
    values[missing] = np.nan
    with np.errstate(over="ignore"):
        floats: NDArray[np.float32] = ((values * scale + offset) * band.scale + band.offset).astype(np.float32)
    if np.isinf(floats).any():
        raise InputUnreadable(f"{name} unpacks to values beyond 32-bit floats; its scale or offset is wrong")
    return floats


def refuse_nodata_among(values: "NDArray[np.float32]", nodata: float, name: str) -> None:
    """Raises InputUnreadable if a measurement is the number that would mean that there is none."""
    if (values == nodata).any():
        raise InputUnreadable(f"{name} has values of {nodata:g}, which raster.nodata means; declare another nodata")


def same_grid(grids: Sequence[PixelGrid], name: str) -> PixelGrid:
    first = grids[0]
    if not all(grid.agrees_with(first) for grid in grids):
        raise InputUnreadable(f"{name} has bands on different grids, which do not form one raster")
    return first


def _rows_of(window: "Window", top: int, rows: int) -> "Window":
    from rasterio.windows import Window

    return Window(window.col_off, window.row_off + top, window.width, rows)


def _read_part(source: BandSource, window: "Window", name: str) -> "NDArray[np.float32]":
    dataset, place = source.dataset, source.number - 1
    raw = dataset.read(source.number, window=window)
    missing = _is_missing(source, raw, window)
    return measured(raw, missing, source.band, name, dataset.scales[place], dataset.offsets[place])


def _is_missing(source: BandSource, raw: "NDArray[Any]", window: "Window") -> "NDArray[np.bool_]":
    from rasterio.enums import MaskFlags

    missing = is_sentinel(raw, source.band.sentinels)
    if MaskFlags.all_valid not in source.dataset.mask_flag_enums[source.number - 1]:
        missing |= source.dataset.read_masks(source.number, window=window) == 0
    if source.valid is not None:
        missing |= (raw < source.valid[0]) | (raw > source.valid[1])
    return missing


def is_sentinel(raw: "NDArray[Any]", sentinels: Sequence[float]) -> "NDArray[np.bool_]":
    """Compares in the type of the file: -99.9 as a 32-bit float is another number than as a 64-bit one."""
    import numpy as np

    kind = raw.dtype if raw.dtype.kind == "f" else np.dtype(np.float64)
    found = np.zeros(raw.shape, np.bool_)
    for one in np.array(sentinels, kind):
        found |= raw == one
    return found

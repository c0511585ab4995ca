"""A small picture of one band, as PNG: colours from a palette, transparent where there is no value."""

from io import BytesIO
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.rasters import Raster
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.raster.grid import Pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST_SIDE = 512
DEFAULT_PALETTE = "viridis"


def draw_picture(pixels: Pixels, raster: Raster) -> bytes:
    """Without a declared picture, the first band is drawn from its least to its largest value."""
    import numpy as np
    from PIL import Image

    picture = raster.picture
    names = [band.name for band in raster.bands]
    number = names.index(picture.band) if picture is not None and picture.band is not None else 0
    values = _reduced(pixels.values[number])
    there = ~np.isnan(values)
    low, high = (picture.min, picture.max) if picture else _bounds(values, there)
    shares = np.clip((np.where(there, values, low) - low) / ((high - low) or 1.0), 0.0, 1.0)
    colours = _palette(picture.palette if picture else DEFAULT_PALETTE)[np.round(shares * 255).astype(np.uint8)]
    alpha = np.where(there, np.uint8(255), np.uint8(0))
    colours[~there] = 0
    file = BytesIO()
    Image.fromarray(np.dstack([colours, alpha]), "RGBA").save(file, "PNG", optimize=False, compress_level=6)
    return file.getvalue()


def _reduced(values: "NDArray[np.float32]") -> "NDArray[np.float64]":
    """Takes every so many pixels, so that the longer side has at most 512."""
    import numpy as np

    height, width = values.shape
    share = max(1.0, max(height, width) / LARGEST_SIDE)
    rows, columns = (_places(size, max(1, int(size / share))) for size in (height, width))
    return values[np.ix_(rows, columns)].astype(np.float64)


def _places(size: int, count: int) -> "NDArray[np.int64]":
    """Returns the middle of each of `count` parts."""
    import numpy as np

    return ((np.arange(count) * 2 + 1) * size) // (2 * count)


def _bounds(values: "NDArray[np.float64]", there: "NDArray[np.bool_]") -> tuple[float, float]:
    return (float(values[there].min()), float(values[there].max())) if there.any() else (0.0, 1.0)


def _palette(name: str) -> "NDArray[np.uint8]":
    """Returns 256 colours. Raises DeclarationInvalid if Matplotlib has no palette of that name."""
    import numpy as np
    from matplotlib import colormaps

    if name not in colormaps:
        raise DeclarationInvalid(f"raster.picture.palette: {name!r} is not a palette of Matplotlib, such as viridis")
    colours: NDArray[np.uint8] = colormaps[name].resampled(256)(np.arange(256), bytes=True)[:, :3].copy()
    return colours

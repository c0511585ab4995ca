"""The vegetation index of a Landsat scene over the area: what is clear of clouds and shadows, from -1 to 1."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.inputs import Input
from kfm_pipelines.declarations.rasters import Band, Raster
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.grid import Pixels
from kfm_pipelines.raster.read import SourceRaster, read_raster
from kfm_pipelines.scenes import bands_to_derive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Of the band QA_PIXEL: no value, dilated cloud, cirrus, cloud, shadow of a cloud, snow.
UNCLEAR_BITS = sum(1 << bit for bit in (0, 1, 2, 3, 4, 5))


def vegetation_index(folder: str, members: Mapping[str, bytes], source: Input, area: Area) -> Pixels:
    """Raises InputUnreadable unless the three bands can be read and have one grid."""
    import numpy as np

    red, infrared, quality = _read_bands(folder, members, source, area)
    seen, near = red.clipped.values[0], infrared.clipped.values[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        index = (near - seen) / (near + seen)
    # Corrected for the atmosphere, dark pixels may have less than nothing; their index means nothing.
    meaningful = is_clear(quality.clipped.values[0]) & (seen >= 0) & (near >= 0) & (near + seen > 0)
    return Pixels(red.clipped.grid, np.where(meaningful, index, np.float32(np.nan))[np.newaxis])


def is_clear(quality: "NDArray[np.float32]") -> "NDArray[np.bool_]":
    """Whether pixels have a value and see the ground, by the bits of QA_PIXEL."""
    import numpy as np

    known = np.isfinite(quality)
    bits = np.where(known, quality, 1).astype(np.uint16)
    clear: NDArray[np.bool_] = known & ((bits & UNCLEAR_BITS) == 0)
    return clear


def _read_bands(folder: str, members: Mapping[str, bytes], source: Input, area: Area) -> Sequence[SourceRaster]:
    scaled = {"scale": 0.0000275, "offset": -0.2, "sentinels": [0.0]}  # of all products of Collection 2, Level 2
    read = []
    for name, scaling in zip(bands_to_derive(folder), (scaled, scaled, {}), strict=True):
        if name not in members:
            raise InputUnreadable(f"{folder}{name} was not fetched, though the scene touches the area")
        band = Raster(bands=[Band.model_validate({"name": "band", "unit": "1", "description": name, **scaling})])
        as_geotiff = source.model_copy(update={"format": "geotiff", "formats": {}})
        read.append(read_raster(members[name], f"{folder}{name}", band, as_geotiff, area))
    for one, name in zip(read, bands_to_derive(folder), strict=True):
        if not one.whole.agrees_with(read[0].whole):
            raise InputUnreadable(f"{folder}{name} has another grid than the red band of the scene")
    return read

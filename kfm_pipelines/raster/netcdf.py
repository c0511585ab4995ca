"""What is special about NetCDF: variables, and the attributes of CF."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    from rasterio.io import MemoryFile

_NUMBERS = re.compile(r"[-+0-9.eE]+")


def variable_of(file: "MemoryFile", band: Band, name: str) -> str:
    """Returns the variable of a band: the one with the declared name, or the only one."""
    with file.open(driver="netCDF") as dataset:
        listed = [one.rpartition(":")[2] for one in dataset.subdatasets]
        if not listed and dataset.count:
            listed = [dataset.tags(1)["NETCDF_VARNAME"]]
    if band.source in listed:
        return str(band.source)
    if band.source == 1 and len(listed) == 1:
        return str(listed[0])
    if isinstance(band.source, int):
        raise InputUnreadable(f"{name} has {len(listed)} variables on grids; name one as bands.source of {band.name}")
    raise InputUnreadable(f"{name} has no variable {band.source!r} on a grid")


def valid_range(attributes: Mapping[str, str]) -> tuple[float, float] | None:
    """Returns the packed values that CF calls valid; others are missing."""
    least, most = float("-inf"), float("inf")
    both = _NUMBERS.findall(attributes.get("valid_range", ""))
    try:
        if len(both) == 2:
            least, most = float(both[0]), float(both[1])
        least = float(attributes.get("valid_min", least))
        most = float(attributes.get("valid_max", most))
    except ValueError:
        return None
    return None if (least, most) == (float("-inf"), float("inf")) else (least, most)

"""Rules about rasters, judged on the bytes that would be published: grid, values, and how many there are."""

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from kfm_pipelines.data_files import COG_TYPE
from kfm_pipelines.declarations.rasters import Band, Grid
from kfm_pipelines.gates.verdict import Finding, Rule, TableSubject, error
from kfm_pipelines.raster.cog import read_cog
from kfm_pipelines.raster.grid import TOLERANCE, PixelGrid, Pixels, declared_grid, outside
from kfm_pipelines.raster.open import open_raster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _check_as_declared(subject: TableSubject) -> Iterator[Finding]:
    """A key whose objects were all deleted has neither rows nor a raster."""
    declared = subject.dataset.published_raster
    if declared is None or subject.attachments is None:
        return
    rasters = list(_rasters(subject))
    if not rasters and subject.table.num_rows:
        yield error("raster-as-declared", "raster", "a raster beside the table", "none")
    for name, data in rasters:
        with open_raster(data, name, "GTiff") as dataset:
            found = (dataset.count, set(dataset.dtypes), dataset.nodata)
        if found != (len(declared.bands), {"float32"}, declared.nodata):
            expected = f"{len(declared.bands)} bands of 32-bit floats with nodata {declared.nodata:g}"
            measured = f"{found[0]} bands of {', '.join(sorted(found[1]))} with nodata {found[2]}"
            yield error("raster-as-declared", name, expected, measured)
        if declared.grid is not None:
            yield from _compare_grid(name, read_cog(data, name).grid, declared.grid)


def _compare_grid(name: str, found: PixelGrid, declared: Grid) -> Iterator[Finding]:
    wanted = declared_grid(declared)
    if found.crs != wanted.crs:
        yield error("raster-as-declared", name, declared.crs, found.code or "a system without a code")
        return
    steps = (
        (found.transform.c - wanted.transform.c) / wanted.transform.a,
        (found.transform.f - wanted.transform.f) / wanted.transform.e,
    )
    sizes = found.transform.a / wanted.transform.a, found.transform.e / wanted.transform.e
    off_grid = any(abs(step - round(step)) > TOLERANCE for step in steps)
    if off_grid or any(abs(size - 1) * max(found.width, found.height) > TOLERANCE for size in sizes):
        expected = f"pixels of {declared.pixel_width:g} × {declared.pixel_height:g} from {declared.west:g}, "
        measured = f"{found.transform.a:g} × {-found.transform.e:g} from {found.transform.c:g}, {found.transform.f:g}"
        yield error("raster-as-declared", name, f"{expected}{declared.north:g}", measured)


def _check_not_empty(subject: TableSubject) -> Iterator[Finding]:
    if _nodata_share(subject) >= 1.0:
        return
    for name, pixels in _read_rasters(subject):
        for band, there in zip(_bands(subject), _there(pixels), strict=False):
            if not there.any():
                yield error("raster-not-empty", f"{name}, {band.name}", "at least one value", "nodata everywhere")


def may_be_empty(subject: TableSubject) -> bool:
    """Whether the table of a raster need not have a row: its dataset declares that every pixel may lack a value, as in
    an hour without rain. A key whose objects were deleted has no raster either."""
    declared = subject.dataset.published_raster
    has_raster = subject.attachments is None or bool(list(_rasters(subject)))
    return declared is not None and declared.nodata_share >= 1.0 and has_raster


def _check_nodata_share(subject: TableSubject) -> Iterator[Finding]:
    """Counts the pixels within the area: those around it never have a value."""
    allowed = _nodata_share(subject)
    for name, pixels in _read_rasters(subject):
        inside = ~_outside(subject, pixels.grid)
        for band, there in zip(_bands(subject), _there(pixels), strict=False):
            share = 1.0 - float(there[inside].mean()) if inside.any() else 1.0
            if share > allowed:
                expected = f"at most {allowed:.1%} of the area without a value"
                yield error("raster-nodata-share", f"{name}, {band.name}", expected, f"{share:.1%}")


def _check_range(subject: TableSubject) -> Iterator[Finding]:
    for name, pixels in _read_rasters(subject):
        for band, values in zip(_bands(subject), pixels.values, strict=False):
            if count := _count_beyond(values, band):
                measured = f"{count} of {values.size} pixels outside"
                yield error("raster-range", f"{name}, {band.name}", _format_range(band), measured)


def _check_in_area(subject: TableSubject) -> Iterator[Finding]:
    for name, pixels in _read_rasters(subject):
        beyond = _outside(subject, pixels.grid)
        count = sum(int(there[beyond].sum()) for there in _there(pixels))
        if count and subject.area is not None:
            yield error("raster-in-area", name, f"values within {subject.area.name}", f"{count} pixels outside it")


def _rasters(subject: TableSubject) -> Iterator[tuple[str, bytes]]:
    """Yields nothing where there is nothing to judge: a subject without files beside its table."""
    if subject.attachments is not None and subject.dataset.published_raster is not None:
        yield from ((one.name, one.data) for one in subject.attachments.files if one.media_type == COG_TYPE)


def _read_rasters(subject: TableSubject) -> Iterator[tuple[str, Pixels]]:
    return ((name, read_cog(data, name)) for name, data in _rasters(subject))


def _bands(subject: TableSubject) -> list[Band]:
    declared = subject.dataset.published_raster
    return declared.bands if declared else []


def _nodata_share(subject: TableSubject) -> float:
    declared = subject.dataset.published_raster
    return declared.nodata_share if declared else 1.0


def _there(pixels: Pixels) -> "Iterator[NDArray[np.bool_]]":
    import numpy as np

    return (~np.isnan(values) for values in pixels.values)


def _outside(subject: TableSubject, grid: PixelGrid) -> "NDArray[np.bool_]":
    import numpy as np

    return np.zeros((grid.height, grid.width), np.bool_) if subject.area is None else outside(grid, subject.area)


def _count_beyond(values: "NDArray[np.float32]", band: Band) -> int:
    """Compares in 32 bits, as the values are: a bound that is a value of the file is within."""
    import numpy as np

    beyond = np.zeros(values.shape, np.bool_)
    if band.min is not None:
        beyond |= values < np.float32(band.min)
    if band.max is not None:
        beyond |= values > np.float32(band.max)
    return int(beyond.sum())


def _format_range(band: Band) -> str:
    least = "" if band.min is None else f"at least {band.min:g}"
    most = "" if band.max is None else f"at most {band.max:g}"
    return " and ".join(one for one in (least, most) if one)


_GRID = "Ask the producer why the grid has changed; declare the new one in raster.grid if it is right."
_EMPTY = (
    "Check that the object is complete, and that its nodata and sentinels are declared as they are in it; declare "
    "raster.nodata_share: 1.0 if an object without any value is usual."
)
_SHARE = "Check that the object covers the area; declare a higher raster.nodata_share if so little is usual."
_RANGE = "Check unit, scale and sentinels of the band; declare wider bounds if these values are right."
_AREA = "The processor left values outside the area: fix it, or the mask, before publishing anything."
_HAS_RASTER = attrgetter("dataset.published_raster")
RASTER_AS_DECLARED = Rule("raster-as-declared", _check_as_declared, _GRID, _HAS_RASTER)
RASTER_RULES: tuple[Rule[TableSubject], ...] = (
    Rule("raster-not-empty", _check_not_empty, _EMPTY, _HAS_RASTER),
    Rule("raster-nodata-share", _check_nodata_share, _SHARE, _HAS_RASTER),
    Rule("raster-range", _check_range, _RANGE, _HAS_RASTER),
    Rule("raster-in-area", _check_in_area, _AREA, _HAS_RASTER),
)

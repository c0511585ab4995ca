"""Finds the declared bands in a file of each format that GDAL reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.inputs import Format
from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster import netcdf
from kfm_pipelines.raster.bands import BandSource
from kfm_pipelines.raster.hdf5 import refuse_other_files
from kfm_pipelines.raster.open import open_memory, open_raster

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rasterio.io import DatasetReader, MemoryFile

    FindBands = Callable[[bytes, str, Sequence[Band]], AbstractContextManager[list[BandSource]]]

MAX_BLOCKS = 1_000_000  # of a GeoTIFF; to ask for so many takes some seconds
GRIB_MARK, GRIB_END, GRIB_EDITION = b"GRIB", b"7777", 2


def step_of(band: Band, steps: Sequence[int], name: str) -> int:
    """Returns the one step that a source has, or the declared one of several."""
    if band.step is None and len(steps) > 1:
        raise InputUnreadable(f"{name} has {len(steps)} steps of {band.source!r}; declare bands.step of {band.name}")
    if (band.step or 1) > len(steps):
        raise InputUnreadable(f"{name} has no step {band.step or 1} of {band.source!r}, only {len(steps)}")
    return steps[(band.step or 1) - 1]


@contextmanager
def geotiff_bands(data: bytes, name: str, bands: Sequence[Band]) -> "Iterator[list[BandSource]]":
    with open_raster(data, name, "GTiff") as dataset:
        sources = [BandSource(band, dataset, _number(band, dataset, dataset.descriptions, name)) for band in bands]
        yield sources


@contextmanager
def grib_bands(data: bytes, name: str, bands: Sequence[Band]) -> "Iterator[list[BandSource]]":
    refuse_cut_grib(data, name)
    with open_raster(data, name, "GRIB") as dataset:
        elements = [dataset.tags(number).get("GRIB_ELEMENT") for number in dataset.indexes]
        yield [BandSource(band, dataset, _number(band, dataset, elements, name)) for band in bands]


@contextmanager
def netcdf_bands(data: bytes, name: str, bands: Sequence[Band]) -> "Iterator[list[BandSource]]":
    refuse_other_files(data, name)
    with open_memory(data, name, "netCDF") as file, ExitStack() as stack:
        yield [_open_variable(file, band, name, stack) for band in bands]


FORMATS: "Mapping[Format, FindBands]" = {"geotiff": geotiff_bands, "grib2": grib_bands, "netcdf": netcdf_bands}


def refuse_cut_grib(data: bytes, name: str) -> None:
    """Raises InputUnreadable unless every message is complete: GDAL would leave out one that is cut."""
    start, found = data.find(GRIB_MARK), 0
    while start >= 0:
        edition, length = data[start + 7 : start + 8], int.from_bytes(data[start + 8 : start + 16])
        if edition != bytes([GRIB_EDITION]):
            raise InputUnreadable(f"{name} is not readable as GRIB2: a message has another edition, or is cut")
        end = start + length
        if length < 16 or data[end - len(GRIB_END) : end] != GRIB_END:
            raise InputUnreadable(f"{name} is not readable as GRIB2: message {found + 1} is cut or damaged")
        start, found = data.find(GRIB_MARK, end), found + 1
    if not found:
        raise InputUnreadable(f"{name} is not readable as GRIB2: it has no message")


def refuse_cut_geotiff(sources: Sequence[BandSource], size: int, name: str) -> None:
    """Raises InputUnreadable unless every block of these bands lies within the file: only some of them are read. GDAL
    is asked for each, so there may be only so many."""
    from rasterio.enums import Interleaving

    # All bands of a file that has the values of a pixel together are in the same blocks.
    together = [one for one in sources if one.dataset.interleaving is Interleaving.pixel]
    asked = [*together[:1], *(one for one in sources if one not in together)]
    count = sum(rows * columns for rows, columns in map(_block_counts, asked))
    if count > MAX_BLOCKS:
        raise InputUnreadable(f"{name} has {count} blocks; at most {MAX_BLOCKS} are read: write it with larger ones")
    for one in asked:
        for place in _blocks_of(one):
            offset, length = (one.dataset.get_tag_item(f"BLOCK_{what}_{place}", "TIFF", bidx=one.number)
                              for what in ("OFFSET", "SIZE"))  # fmt: skip
            if offset is not None and int(offset) + int(length or 0) > size:
                raise InputUnreadable(f"{name} is not readable as GeoTIFF: it is cut; a block lies beyond its end")


def _blocks_of(source: BandSource) -> Iterator[str]:
    rows, columns = _block_counts(source)
    for y in range(rows):
        for x in range(columns):
            yield f"{x}_{y}"


def _block_counts(source: BandSource) -> tuple[int, int]:
    """Returns how many blocks of a band lie above each other and side by side."""
    rows, columns = source.dataset.block_shapes[source.number - 1]
    return -(-source.dataset.height // rows), -(-source.dataset.width // columns)


def _number(band: Band, dataset: "DatasetReader", names: Sequence[str | None], name: str) -> int:
    if isinstance(band.source, int):
        if band.source not in dataset.indexes:
            raise InputUnreadable(f"{name} has no band {band.source}; it has {dataset.count}")
        return band.source
    numbers = [number for number, known in zip(dataset.indexes, names, strict=True) if known == band.source]
    if not numbers:
        raise InputUnreadable(f"{name} has no band called {band.source!r}")
    return step_of(band, numbers, name)


def _open_variable(file: "MemoryFile", band: Band, name: str, stack: ExitStack) -> BandSource:
    import rasterio

    variable = netcdf.variable_of(file, band, name)
    dataset = stack.enter_context(rasterio.open(f'netcdf:"{file.name}":{variable}', driver="netCDF"))
    number = step_of(band, list(dataset.indexes), name)
    return BandSource(band, dataset, number, netcdf.valid_range(dataset.tags(number)))

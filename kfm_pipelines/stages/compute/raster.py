"""Computes what is published of rasters: the objects of a key, clipped to the area, as one raster."""

from collections.abc import Callable, Iterator, Sequence

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.rasters import Raster
from kfm_pipelines.errors import DeclarationInvalid, InputUnreadable
from kfm_pipelines.raster.composite import combine
from kfm_pipelines.raster.grid import PixelGrid, Pixels
from kfm_pipelines.raster.read import read_raster
from kfm_pipelines.stages.compute.assemble import assemble
from kfm_pipelines.stages.compute.result import Computed, SourceObject


def process_raster(dataset: Dataset, objects: Sequence[SourceObject], load_area: Callable[[], Area]) -> Computed:
    """The order of the objects does not matter: they are taken by their addresses."""
    if dataset.raster is None:
        raise DeclarationInvalid(f"{dataset.dataset}: needs a section raster")
    ordered = sorted(objects, key=lambda source: source.asset_uri)
    if len(ordered) > 1 and dataset.raster.composite == "refuse":
        names = f"{ordered[0].asset_uri} and {ordered[1].asset_uri}"
        raise InputUnreadable(f"{names} are in one key; declare raster.composite, or a window with one object")
    rasters = _read_all(dataset, dataset.raster, ordered, load_area())
    return assemble(combine(rasters, dataset.raster.composite), dataset)


def _read_all(dataset: Dataset, raster: Raster, objects: Sequence[SourceObject], area: Area) -> Iterator[Pixels]:
    first: PixelGrid | None = None
    for source in objects:
        read = read_raster(source.data, source.asset_uri, raster, dataset.input, area)
        first = first or read.whole
        if not read.whole.agrees_with(first):
            other = objects[0].asset_uri
            raise InputUnreadable(f"{source.asset_uri} has another grid than {other}; one key has one grid")
        yield read.clipped

"""Computes what is published of rasters: the objects of a key, layers or tiles, as one raster, clipped to the area."""

from collections.abc import Callable, Sequence

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Input
from kfm_pipelines.declarations.rasters import Raster
from kfm_pipelines.errors import DeclarationInvalid, InputUnreadable
from kfm_pipelines.raster.bands import refuse_nodata_among
from kfm_pipelines.raster.composite import combine
from kfm_pipelines.raster.grid import Pixels, window_of
from kfm_pipelines.raster.mosaic import union_of
from kfm_pipelines.raster.read import clip, read_grid, read_raster, read_tile
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
    return assemble(_read_all(dataset.raster, dataset.input, ordered, load_area()), dataset)


def _read_all(raster: Raster, source: Input, objects: Sequence[SourceObject], area: Area) -> Pixels:
    if len(objects) == 1:
        return read_raster(objects[0].data, objects[0].asset_uri, raster, source, area).clipped
    grids = {one.asset_uri: read_grid(one.data, one.asset_uri, raster, source, area) for one in objects}
    whole, together = union_of(grids), f"the raster of all {len(objects)} objects of the key"
    window = whole.cut(window_of(whole, area, together))
    source.limits.refuse(together, pixels=window.width * window.height * len(raster.bands))
    tiles = (read_tile(one.data, one.asset_uri, raster, source, area, window) for one in objects)
    combined = combine(tiles, window, len(raster.bands), raster.composite)
    refuse_nodata_among(combined.values, raster.nodata, together)
    return clip(combined, area)

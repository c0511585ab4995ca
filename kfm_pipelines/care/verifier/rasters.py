"""Rules on masked rasters: nothing under a footprint shows at any scale, and all else follows from what is published.

The pixels under footprints are found by GDAL, not by the code that masks them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import h3
import numpy as np
import numpy.typing as npt
import shapely
from rasterio.errors import RasterioError
from rasterio.features import geometry_mask
from rasterio.io import DatasetReader, MemoryFile

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import MaskRaster
from kfm_pipelines.care.verifier.evidence import Breach, Evidence, check_governance_properties
from kfm_pipelines.declarations.dataset import Dataset

RASTER, PICTURE = "raster.tif", "thumbnail.png"
RasterRule = Callable[[Policy, Evidence, Mapping[str, Any]], Iterator[Breach]]
Pixels = npt.NDArray[Any]


def raster_breaches(
    policy: Policy, dataset: Dataset, evidence: Evidence, item: Mapping[str, Any]
) -> tuple[Breach, ...]:
    found = list(check_governance_properties(policy, dataset, item))
    for rule in RULES:
        found += rule(policy, evidence, item)
    return tuple(found)


def _check_files(policy: Policy, evidence: Evidence, item: Mapping[str, Any]) -> Iterator[Breach]:
    if RASTER not in evidence.files or evidence.files.keys() - {RASTER, PICTURE}:
        names = ", ".join(sorted(evidence.files)) or "none"
        yield Breach("raster-files", "release", f"{RASTER}, and perhaps {PICTURE}", names)
    if item.get("properties", {}).get("anon:warning") in (None, ""):
        yield Breach("item-warning", "item: anon:warning", "a warning that places are masked", "none")


def _check_hidden(policy: Policy, evidence: Evidence, item: Mapping[str, Any]) -> Iterator[Breach]:
    """Reads the raster and each of its overviews as a reader would."""
    rule = policy.raster_rule
    data = evidence.files.get(RASTER)
    if rule is None or data is None:
        return
    shapes = hidden_shapes(evidence.footprints, rule.resolution)
    try:
        with MemoryFile(data) as file:
            with file.open(driver="GTiff") as raster:
                levels = range(len(raster.overviews(1)))
                yield from _exposed_pixels(raster, shapes, rule, "raster")
            for level in levels:
                with file.open(driver="GTiff", overview_level=level) as overview:
                    yield from _exposed_pixels(overview, shapes, rule, f"overview {level + 1}")
    except RasterioError:
        yield Breach("raster-hidden", RASTER, "a raster that can be read", "one that cannot")


def hidden_shapes(footprints: "Sequence[shapely.Geometry]", resolution: int) -> "list[shapely.Geometry]":
    """Returns each footprint together with the cell that its middle lies in."""
    shapes = []
    for one in footprints:
        middle = one.centroid
        corners = h3.cell_to_boundary(h3.latlng_to_cell(middle.y, middle.x, resolution))
        shapes.append(one.union(shapely.Polygon([(longitude, latitude) for latitude, longitude in corners])))
    return shapes


def _exposed_pixels(
    raster: DatasetReader, shapes: "Sequence[shapely.Geometry]", rule: MaskRaster, where: str
) -> Iterator[Breach]:
    """A pixel is hidden if it has no value, or the one that all pixels around it have in common."""
    bands, nodata = raster.read(), raster.nodata
    count = 0
    for one in shapes:
        touched = ~geometry_mask([one], bands.shape[-2:], raster.transform, all_touched=True)
        for band in bands:
            values = band[touched]
            values = values[(values != nodata) & ~np.isnan(values)]
            if rule.method == "nodata" or len(np.unique(values)) > 1:
                count += len(values)
    if count:
        yield Breach("raster-hidden", where, "no value of its own under a footprint", f"{count} pixels with one")


def _check_follows(policy: Policy, evidence: Evidence, item: Mapping[str, Any]) -> Iterator[Breach]:
    """Overviews, statistics, picture and cells must be those of the published raster, and no other."""
    if evidence.reassemble is None or RASTER not in evidence.files:
        yield Breach("raster-follows", "release", "a raster from which the rest can be made again", "none")
        return
    again = evidence.reassemble(evidence.files[RASTER])
    staged = {**evidence.files, "data.parquet": evidence.data}
    for name in sorted({*staged, *again.files}):
        if staged.get(name) != again.files.get(name):
            yield Breach("raster-follows", name, "what follows from the published raster", "something else")
    for name, stated in again.properties.items():
        asset = item.get("assets", {}).get(name, {})
        if any(asset.get(field) != value for field, value in stated.items()):
            yield Breach("raster-follows", f"item: {name}", "what follows from the published raster", "something else")


RULES: tuple[RasterRule, ...] = (_check_files, _check_hidden, _check_follows)

"""Masks the raster of a key, and makes all that is published of it again from the masked pixels."""

from collections.abc import Mapping
from typing import Any

from kfm_pipelines.care.governance import KeyRules
from kfm_pipelines.care.verifier.evidence import Reassembled
from kfm_pipelines.data_files import Attachments
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.parquet.parquet import write_published
from kfm_pipelines.raster.cog import read_cog
from kfm_pipelines.raster.grid import Pixels, is_plain
from kfm_pipelines.stages.compute.assemble import RASTER, assemble
from kfm_pipelines.stages.compute.result import Computed
from kfm_pipelines.stores.layout import STAGED_DATA


def mask_pixels(attachments: Attachments, dataset: Dataset, rules: KeyRules) -> tuple[Computed, Mapping[str, Any]]:
    """Returns what may be published, and how well it is hidden. Raises PolicyRefused without a word of the places."""
    # Loads numpy and shapely, which loading the definitions must not.
    from kfm_pipelines.care.masks.rasters import hidden_radius, mask_raster

    rule, footprints = rules.policy.raster_rule, rules.footprints
    rasters = [one for one in attachments.files if one.name == RASTER]
    if rule is None or footprints is None or len(rasters) != 1 or attachments.remote:
        raise PolicyRefused(f"policy {rules.policy.name} has no rule for files beside the table; nothing is published")
    pixels = read_cog(rasters[0].data, RASTER)
    if not is_plain(pixels.grid.crs):
        raise PolicyRefused("a raster is masked in longitudes and latitudes only; nothing is published")
    transform = tuple(pixels.grid.transform)[:6]
    masked = mask_raster(pixels.values, transform, footprints.shapes, rule, float("nan"))
    computed = assemble(Pixels(pixels.grid, masked), dataset)
    return computed, {"uncertainty_m": hidden_radius(rule.resolution), "footprints": len(footprints.shapes)}


def reassemble(raster: bytes, dataset: Dataset) -> Reassembled:
    """Makes a release again from its published raster, for the verifier to compare."""
    again = assemble(read_cog(raster, RASTER), dataset)
    files = {one.file_name: one.data for one in again.attachments.files}
    files[STAGED_DATA] = write_published(again.table, dataset.table)
    return Reassembled(files, {one.name: one.properties for one in again.attachments.files})

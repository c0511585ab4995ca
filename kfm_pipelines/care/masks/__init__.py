"""Masks: what a policy says, done to a table or a raster. The same input, policy and secret give the same release."""

from kfm_pipelines.care.masks.measures import Measures
from kfm_pipelines.care.masks.rasters import masked_raster
from kfm_pipelines.care.masks.release import Masked, mask_table

__all__ = ["Masked", "Measures", "mask_table", "masked_raster"]

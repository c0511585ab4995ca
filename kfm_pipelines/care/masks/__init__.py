"""Masks: what a policy says, done to a table or a raster. The same input, policy and secret give the same release."""

from kfm_pipelines.care.masks.measures import Measures
from kfm_pipelines.care.masks.rasters import mask_raster
from kfm_pipelines.care.masks.release import MaskingResult, mask_table

__all__ = ["MaskingResult", "Measures", "mask_raster", "mask_table"]

"""Masks apply a policy to a table or a raster. The same input, policy and secret always give the same release."""

from kfm_pipelines.care.masks.release import MaskingResult, mask_table

__all__ = ["MaskingResult", "mask_table"]

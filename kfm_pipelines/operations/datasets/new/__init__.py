"""Writes the declaration of a new dataset from one of its objects: complete, valid, and to be edited."""

from kfm_pipelines.operations.datasets.new.draft import Draft, draft_declaration

__all__ = ["Draft", "draft_declaration"]

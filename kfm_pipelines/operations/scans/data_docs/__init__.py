"""Data Docs: the pages that Great Expectations makes of its results, in the store; they need no network."""

from kfm_pipelines.operations.scans.data_docs.build import write_data_docs

__all__ = ["write_data_docs"]

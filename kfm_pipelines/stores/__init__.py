"""Stores: bytes on a file system or in S3, behind one interface."""

from kfm_pipelines.stores.layout import Failures, Layout, Store, Swap, open_store, raise_failure, read_if_exists
from kfm_pipelines.stores.work import WorkStore

__all__ = ["Failures", "Layout", "Store", "Swap", "WorkStore", "open_store", "raise_failure", "read_if_exists"]

"""Stores: bytes on a file system or in S3, behind one interface."""

from kfm_pipelines.stores.layout import Layout, Store, open_store, read_if_exists
from kfm_pipelines.stores.work import WorkStore

__all__ = ["Layout", "Store", "WorkStore", "open_store", "read_if_exists"]

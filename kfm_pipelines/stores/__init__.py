"""Stores: bytes on a file system or in S3, behind one interface."""

from kfm_pipelines.stores.layout import Layout, Store, open_store, read_if_exists

__all__ = ["Layout", "Store", "open_store", "read_if_exists"]

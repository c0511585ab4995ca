"""Stores: where bytes are kept. Files and S3 behind one small interface, and the source objects events point at."""

from kfm_pipelines.stores.interface import Store, open_store, read_if_exists
from kfm_pipelines.stores.layout import Layout

__all__ = ["Layout", "Store", "open_store", "read_if_exists"]

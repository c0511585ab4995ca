"""Importing this module builds the definitions and imports the large libraries that the declared datasets need, besides
what `preload` imports.

Only the daemon's runs begin with it: they are many. A worker loads a library with its first key that needs it.
"""

import gc
import importlib
import logging
from collections.abc import Iterable

from kfm_pipelines.declarations.dataset import Dataset, load_datasets
from kfm_pipelines.definitions import load_definitions
from kfm_pipelines.settings import load_settings

RASTER = ("exactextract", "rasterio.features", "rasterio.warp")
OF_PROCESSOR = {"raster": RASTER, "scene": RASTER, "vector": ("pyogrio.raw",)}
OF_FORMAT = {"nexrad-level3": ("metpy.io",)}
OF_SUITE = ("great_expectations",)
OF_TABLE = ("kfm_pipelines.sinks.table.files", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "pyiceberg_core")
OF_LINEAGE = ("kfm_pipelines.catalog.lineage.openlineage", "openlineage.client.transport.file")


def libraries_of(datasets: Iterable[Dataset]) -> list[str]:
    """Returns the modules to import, each once."""
    needed: dict[str, None] = {}
    for dataset in datasets:
        needed |= dict.fromkeys(OF_PROCESSOR.get(dataset.processor, ()))
        needed |= dict.fromkeys(OF_FORMAT.get(dataset.input.format, ()))
        needed |= dict.fromkeys(OF_SUITE if dataset.quality.suite else ())
        needed |= dict.fromkeys(OF_TABLE if dataset.tables else ())
    return list(needed)


def _load() -> None:
    try:
        load_definitions().get_repository_def()
        settings = load_settings()
        libraries = libraries_of(load_datasets(settings.resources).values())
        for name in (*(OF_LINEAGE if settings.openlineage_url else ()), *libraries):
            importlib.import_module(name)
    except Exception:  # the run does it again and reports the error; the fork server must not end
        logging.getLogger(__name__).exception("the definitions or their libraries could not be loaded")
    gc.collect()
    gc.freeze()  # so that collections in children skip it


_load()

"""Importing this module imports what a run needs. A fork server does so once, so that its children need not.

It opens no connection and starts no thread of Python: the children would share them.
"""

import gc
import importlib
import logging
from collections.abc import Callable
from functools import partial

from kfm_pipelines.aws.clients import load_service_models
from kfm_pipelines.catalog.trust.environment import environment_facts
from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.settings import load_settings

# Imported by the stages when they need them.
MODULES = (
    "boto3.session", "botocore.handlers", "cyclonedx.output.json", "dagster._grpc.impl", "dagster_postgres",
    "fsspec.implementations.local", "h3", "jsonschema", "jsonschema_rs", "matplotlib.backends.backend_agg",
    "matplotlib.figure", "obstore.auth.boto3", "obstore.store", "opentelemetry.exporter.otlp.json.file",
    "opentelemetry.sdk.metrics.export", "opentelemetry.sdk.trace.export", "pandas", "psycopg2.extras", "psycopg_pool",
    "pyarrow.parquet", "pystac.validation", "s3transfer.manager", "securesystemslib.signer", "shapely", "upath",
    "kfm_pipelines.definitions",
)  # fmt: skip

# Large, and only loaded if a declared dataset needs them.
SUITE_MODULES = ("great_expectations",)
RASTER_MODULES = ("exactextract", "rasterio.features", "rasterio.warp")
MODULES_OF_PROCESSOR = {"raster": RASTER_MODULES, "scene": RASTER_MODULES, "vector": ("pyogrio.raw",)}
MODULES_OF_FORMAT = {"nexrad-level3": ("metpy.io",)}


def load_modules_of_datasets() -> None:
    """Imports what the declared datasets need besides; nothing outside an installation."""
    try:
        datasets = load_datasets(load_settings().resources)
    except SettingsInvalid:
        return
    for dataset in datasets.values():
        names = MODULES_OF_PROCESSOR.get(dataset.processor, ()) + MODULES_OF_FORMAT.get(dataset.input.format, ())
        for name in names + (SUITE_MODULES if dataset.quality.suite else ()):
            importlib.import_module(name)


_LOADS: tuple[Callable[[], object], ...] = (
    *(partial(importlib.import_module, name) for name in MODULES),
    partial(load_service_models, "s3", "sns", "sqs"),
    load_modules_of_datasets,
    environment_facts,  # of the code that is loaded, whatever is checked out later
)
for _load in _LOADS:
    try:
        _load()
    except Exception:  # the child does it again and reports the error; the fork server must not end
        logging.getLogger(__name__).exception("%s failed", _load)
gc.collect()
gc.freeze()  # so that collections in children skip it

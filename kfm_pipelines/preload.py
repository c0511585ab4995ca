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

# Imported by the stages when they need them. What few datasets need is in `preload_libraries`.
MODULES = (
    "boto3.session", "botocore.handlers", "cyclonedx.output.json", "dagster._grpc.impl", "dagster_postgres",
    "fsspec.implementations.local", "h3", "jsonschema", "jsonschema_rs", "matplotlib.backends.backend_agg",
    "matplotlib.figure", "obstore.auth.boto3", "obstore.store", "opentelemetry.exporter.otlp.json.file",
    "opentelemetry.sdk.metrics.export", "opentelemetry.sdk.trace.export", "pandas", "psycopg2.extras", "psycopg_pool",
    "pyarrow.parquet", "pystac.validation", "s3transfer.manager", "securesystemslib.signer", "shapely", "upath",
    "kfm_pipelines.definitions",
)  # fmt: skip

_LOADS: tuple[Callable[[], object], ...] = (
    *(partial(importlib.import_module, name) for name in MODULES),
    partial(load_service_models, "s3", "sns", "sqs"),
    environment_facts,  # of the code that is loaded, whatever is checked out later
)
for _load in _LOADS:
    try:
        _load()
    except Exception:  # the child does it again and reports the error; the fork server must not end
        logging.getLogger(__name__).exception("%s failed", _load)
gc.collect()
gc.freeze()  # so that collections in children skip it

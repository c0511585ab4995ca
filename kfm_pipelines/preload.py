"""Importing this module imports what a run needs. A fork server does so once, so that its children need not.

It reads no setting, opens no connection and starts no thread of Python: all of that would be shared by the children.
"""

import gc
import importlib
import logging

from kfm_pipelines.aws.clients import load_service_models
from kfm_pipelines.catalog.trust.environment import sbom

# Imported by the stages when they need them. Great Expectations is left out: few datasets need it, and it is large.
MODULES = (
    "boto3.session", "botocore.handlers", "cyclonedx.output.json", "dagster._grpc.impl", "dagster_postgres",
    "fsspec.implementations.local", "h3", "jsonschema", "jsonschema_rs", "matplotlib.backends.backend_agg",
    "matplotlib.figure", "opentelemetry.exporter.otlp.json.file", "opentelemetry.sdk.metrics.export",
    "opentelemetry.sdk.trace.export", "pandas", "psycopg2.extras", "psycopg_pool", "pyarrow.parquet",
    "pystac.validation", "s3transfer.manager", "securesystemslib.signer", "shapely", "upath",
    "kfm_pipelines.definitions",
)  # fmt: skip

for _name in MODULES:
    try:
        importlib.import_module(_name)
    except Exception:  # the child imports it again and reports the error; the fork server must not end
        logging.getLogger(__name__).exception("%s cannot be preloaded", _name)
load_service_models("s3", "sns", "sqs")
sbom()
gc.collect()
gc.freeze()  # so that collections in children skip it

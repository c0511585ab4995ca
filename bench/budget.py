"""What a key asks of S3, of Postgres and of a disk in a run over 200 keys, against what it may ask.

Requests and messages are counted on the wire, those of the start of the worker included.
"""

import os
from pathlib import Path
from unittest.mock import patch

from bench.measurement import Measurement
from bench.stack import emit_streamflow, own_stack, postgres_behind_proxy, run_worker
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.cli.main import quiet_libraries
from kfm_pipelines.definitions import CHORES, build_definitions
from kfm_pipelines.dispatch.worker import work
from kfm_pipelines.stores.files import sync_file_system
from kfm_pipelines_tests.fixtures.stores.s3_faults import open_wire

KEYS = 200
BUCKET = "kfm-bench-store"
ALLOWED_REQUESTS, ALLOWED_MESSAGES, ALLOWED_SYNCS = 12, 60, 6


def requests_and_messages(folder: Path) -> list[Measurement]:
    with own_stack(folder, KFM_STORE_URL=f"s3://{BUCKET}/published") as services:
        s3_client().create_bucket(Bucket=BUCKET)
        emit_streamflow(services, 0, KEYS)
        with (
            open_wire(os.environ["AWS_ENDPOINT_URL"]) as s3,
            postgres_behind_proxy(services, speaks_postgres=True) as (postgres, variables),
        ):
            run_worker({"AWS_ENDPOINT_URL_S3": s3.url, **variables})
            requests, messages = s3.requests.total(), postgres.messages.total()
    return [
        Measurement("s3_requests_per_key", requests / KEYS, "requests/key", ALLOWED_REQUESTS),
        Measurement("sql_messages_per_key", messages / KEYS, "messages/key", ALLOWED_MESSAGES),
    ]


def syncs(folder: Path) -> Measurement:
    quiet_libraries()
    synced: list[int] = []

    def count(descriptor: int) -> None:
        synced.append(descriptor)
        sync_file_system(descriptor)

    with own_stack(folder) as services:
        emit_streamflow(services, 0, KEYS)
        definitions = build_definitions(services.settings.resources)
        with patch("kfm_pipelines.stores.files.sync_file_system", count):
            worked = work(services, definitions, CHORES, once=True)
    if worked.counts()["published"] != KEYS:
        raise SystemExit(f"{worked.counts()} instead of {KEYS} published keys")
    return Measurement("syncs_per_key", len(synced) / KEYS, "syncs/key", ALLOWED_SYNCS)

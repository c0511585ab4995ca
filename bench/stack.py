"""A stack of a benchmark's own, whatever the shell points to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kfm_pipelines.aws.clients import s3_client, sns_client, sqs_client
from kfm_pipelines.cli.session import open_services
from kfm_pipelines.services import Services


@contextmanager
def own_stack(folder: Path, **variables: str) -> Iterator[Services]:
    for variable in ("KFM_POSTGRES_URL", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "KFM_STORE_URL", "DAGSTER_HOME"):
        os.environ.pop(variable, None)
    os.environ.update({"KFM_HOME": str(folder / "home"), **variables})
    for client in (s3_client, sns_client, sqs_client):
        client.cache_clear()  # the stack has new ports each time it starts
    with open_services() as services:
        yield services

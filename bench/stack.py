"""A stack of a benchmark's own, whatever the shell points to, with events in it and workers on it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kfm_pipelines.aws.clients import s3_client, sns_client, sqs_client
from kfm_pipelines.cli.session import open_services
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.proxy import Proxy, open_proxy

START = datetime(2025, 1, 1, tzinfo=UTC)
WORK = [sys.executable, "-c", "from kfm_pipelines.cli import main; main()", "work", "--once", "--json"]


@contextmanager
def own_stack(folder: Path, tables: bool = False, /, **variables: str) -> Iterator[Services]:
    for variable in (
        "KFM_POSTGRES_URL", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "KFM_STORE_URL", "DAGSTER_HOME", "KFM_GRAPH_URL",
    ):  # fmt: skip
        os.environ.pop(variable, None)
    resources = str(_resources(folder, tables=tables))
    own = {"KFM_HOME": str(folder / "home"), "KFM_RESOURCES": resources, "KFM_GRAPH": "off"}
    os.environ.update({**own, **variables})
    for client in (s3_client, sns_client, sqs_client):
        client.cache_clear()  # the stack has new ports each time it starts
    with open_services() as services:
        yield services


def _resources(folder: Path, *, tables: bool) -> Path:
    """Returns what is shipped without derived datasets and tables, which would be work besides what is measured."""
    copy = Path(shutil.copytree(shipped_path("resources"), folder / "resources", dirs_exist_ok=True))
    for declaration in (copy / "datasets").glob("atlas-*.yaml"):
        declaration.unlink()
    for declaration in (copy / "datasets").glob("*.yaml"):
        lines = declaration.read_text().splitlines(keepends=True)
        declaration.write_text("".join(line for line in lines if tables or not line.startswith("tables:")))
    return copy


@contextmanager
def postgres_behind_proxy(services: Services, **options: Any) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """Yields a proxy in front of Postgres, and variables for processes that reach it only through the proxy."""
    direct = urlsplit(services.settings.postgres_url)
    with open_proxy(str(direct.hostname), direct.port or 5432, **options) as proxy:
        url = direct._replace(netloc=direct.netloc.replace(f":{direct.port}", f":{proxy.port}")).geturl()
        yield proxy, {"KFM_POSTGRES_URL": url}


def emit_streamflow(services: Services, first_hour: int, count: int) -> list[str]:
    """Uploads the samples of so many hours and records their events. Returns their keys, which are due."""
    samples = SampleRequest("usgs/streamflow", START + timedelta(hours=first_hour), count)
    keys = emit_samples(services, samples, Topic(services.settings.topic), lambda _: None)
    drain_all(services, budget_seconds=600)
    return keys


def start_worker(variables: Mapping[str, str], workers: int = 1) -> "subprocess.Popen[bytes]":
    """Starts `kfm work --once` on the stack of this process, with other variables."""
    command = [*WORK, *(("--workers", str(workers)) if workers > 1 else ())]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **variables})


def run_worker(variables: Mapping[str, str], workers: int = 1) -> None:
    worker = start_worker(variables, workers)
    if worker.wait():
        raise SystemExit(f"the worker ended with {worker.returncode}")

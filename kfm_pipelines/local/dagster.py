"""Starts Dagster's UI and daemon, which share a code server, as child processes of `kfm up` and `kfm demo`."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from kfm_pipelines.dispatch.tables import open_dispatches
from kfm_pipelines.local.process import LOOPBACK, Command, GuardedProcess, Server, answers, await_end, free_port
from kfm_pipelines.local.stack import Service, running_services
from kfm_pipelines.services import Services
from kfm_pipelines.settings import shipped_path, with_driver

_START_SECONDS = 120
_DEFAULT_PORT = 3000


@contextlib.contextmanager
def serve_dagster(home: Path, environment: Mapping[str, str], port: int | None = None) -> Iterator[Server]:
    """Runs Dagster's UI and daemon on the stack in `environment`; yields once the UI responds."""
    ui_port = port or free_port()
    process = GuardedProcess(home, "dagster", _server_command(home, environment, ui_port))
    try:
        process.wait_until(partial(answers, ui_port, "/server_info"), _START_SECONDS)
        yield Server(process, f"http://{LOOPBACK}:{ui_port}")
    finally:
        process.stop()


@contextlib.contextmanager
def serve_recovered(services: Services, port: int | None = None) -> Iterator[Server]:
    """Runs Dagster's UI and daemon for these services, after it has cleared what an earlier Dagster left behind."""
    home, settings = services.settings.home, services.settings
    await_end(home, "dagster")
    owns_database = running_services(home, {}).get(Service.POSTGRES) == settings.postgres_url
    if owns_database and open_dispatches(services.database):
        from kfm_pipelines.dispatch.dispatch import recover  # imports Dagster, which most starts do not need

        recover(services)
    with serve_dagster(home, os.environ, port or free_port(_DEFAULT_PORT)) as server:
        yield server


def dagster_environment(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that select this home's Dagster instance, unless `environment` names another one."""
    return {
        "KFM_DAGSTER_POSTGRES_URL": with_driver(environment["KFM_POSTGRES_URL"], "psycopg2"),
        "DAGSTER_DISABLE_TELEMETRY": "true",
        "DAGSTER_HOME": environment.get("DAGSTER_HOME") or str(_dagster_home(home)),
    }


def _dagster_home(home: Path) -> Path:
    folder = home / "dagster"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(shipped_path("dagster.yaml"), folder / "dagster.yaml")
    return folder


def _server_command(home: Path, environment: Mapping[str, str], port: int) -> Command:
    command = [sys.executable, "-m", "dagster", "dev", "--host", LOOPBACK, "--port", str(port)]
    command += ["--log-format", "json"]
    environ = {**os.environ, **environment, **dagster_environment(home, environment)}
    return Command([*command, "--workspace", str(shipped_path("workspace.yaml"))], environ)

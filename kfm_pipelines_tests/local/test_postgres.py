"""The embedded Postgres keeps its data through crashes and lets nobody in without the password."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from kfm_pipelines.local.postgres import start_postgres
from kfm_pipelines.local.process import Server
from kfm_pipelines_tests.fixtures.sites.processes import eventually, mentioning


@contextmanager
def postgres(home: Path) -> Iterator[Server]:
    server = start_postgres(home)
    try:
        yield server
    finally:
        server.process.stop()


@pytest.mark.slow
def test_committed_data_survives_a_kill_a_foreign_process_id_and_a_lost_password(home: Path) -> None:
    pid_file = home / "postgres" / "postmaster.pid"
    with postgres(home) as server:
        first_password = urlsplit(server.url).password
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        former = pid_file.read_text()
        owner = pid_file.stat().st_uid
        os.kill(int(former.split()[0]), signal.SIGKILL)
        assert eventually(lambda: not server.process.alive)
    assert pid_file.exists()
    (home / "postgres.password").unlink()
    # Postgres only checks for processes of its own user.
    with subprocess.Popen(["sleep", "300"], user=owner if os.geteuid() == 0 else None) as stranger:
        try:
            pid_file.write_text(former.replace(former.split()[0], str(stranger.pid), 1))
            with postgres(home) as server, psycopg.connect(server.url) as connection:
                assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
                assert urlsplit(server.url).password != first_password
        finally:
            stranger.kill()
    assert not mentioning(home)


@pytest.mark.slow
def test_it_is_durable_and_reachable_only_on_loopback_with_the_password(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with postgres(home) as server:
        parts = urlsplit(server.url)
        for password in ("", ":wrong"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"postgresql://postgres{password}@127.0.0.1:{parts.port}/kfm")
        with psycopg.connect(server.url) as connection:
            names = (
                "fsync",
                "synchronous_commit",
                "listen_addresses",
                "unix_socket_directories",
                "password_encryption",
            )
            settings = [connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in names]
        assert settings == [("on",), ("on",), ("127.0.0.1",), ("",), ("scram-sha-256",)]
        visible = " ".join(mentioning(home))
    file = home / "postgres.password"
    assert file.read_text() == parts.password
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert parts.password not in visible + "".join(log.read_text() for log in (home / "logs").iterdir())


@pytest.mark.slow
def test_an_incomplete_cluster_is_replaced_and_a_deep_home_works(new_home: Path) -> None:
    """The path of the home is too long for a Unix socket."""
    home = new_home / ("deep-" * 30)
    unfinished = home / "postgres.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with postgres(home) as server:
        psycopg.connect(server.url).close()
    assert not unfinished.exists()

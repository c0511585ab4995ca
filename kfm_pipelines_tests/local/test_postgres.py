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


def postmaster(home: Path) -> int:
    return int((home / "postgres" / "postmaster.pid").read_text().split()[0])


@pytest.mark.slow
def test_data_survives_a_restart(home: Path) -> None:
    with postgres(home) as server, psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE restarted AS SELECT 42 AS answer")
    assert not mentioning(home)
    with postgres(home) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT answer FROM restarted").fetchone() == (42,)


def test_committed_data_survives_a_killed_server(home: Path) -> None:
    with postgres(home) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE crashed AS SELECT 42 AS answer")
        os.kill(postmaster(home), signal.SIGKILL)
        assert eventually(lambda: not server.process.alive)
    assert (home / "postgres" / "postmaster.pid").exists()
    with postgres(home) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT answer FROM crashed").fetchone() == (42,)


def test_it_starts_although_its_former_process_id_belongs_to_somebody_else(home: Path) -> None:
    pid_file = home / "postgres" / "postmaster.pid"
    with postgres(home):
        former = pid_file.read_text()
        owner = pid_file.stat().st_uid
    # Postgres heeds only processes of its own user.
    with subprocess.Popen(["sleep", "300"], user=owner if os.geteuid() == 0 else None) as stranger:
        try:
            pid_file.write_text(former.replace(former.split()[0], str(stranger.pid), 1))
            with postgres(home) as server:
                psycopg.connect(server.url).close()
        finally:
            stranger.kill()


@pytest.mark.parametrize("password", ["", ":wrong"])
def test_nobody_enters_without_the_password(home: Path, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with postgres(home) as server:
        port = urlsplit(server.url).port
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"postgresql://postgres{password}@127.0.0.1:{port}/kfm")


def test_the_password_is_in_one_file_of_ours_and_in_no_log(home: Path) -> None:
    with postgres(home) as server:
        password = urlsplit(server.url).password
        visible = " ".join(mentioning(home))
    file = home / "postgres.password"
    assert file.read_text() == password
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert password not in visible + "".join(log.read_text() for log in (home / "logs").iterdir())


def test_a_lost_password_is_replaced(home: Path) -> None:
    with postgres(home) as server:
        before = urlsplit(server.url).password
    (home / "postgres.password").unlink()
    with postgres(home) as server, psycopg.connect(server.url):
        assert urlsplit(server.url).password != before


def test_a_half_made_cluster_is_made_again(new_home: Path) -> None:
    unfinished = new_home / "postgres.unfinished"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("18\n")
    with postgres(new_home) as server:
        psycopg.connect(server.url).close()
    assert not unfinished.exists()


def test_a_home_too_deep_for_a_socket_will_do(new_home: Path) -> None:
    home = new_home / ("deep-" * 30)
    home.mkdir()
    with postgres(home) as server:
        psycopg.connect(server.url).close()


def test_it_is_durable_and_on_loopback_only(home: Path) -> None:
    with postgres(home) as server, psycopg.connect(server.url) as connection:
        names = ("fsync", "synchronous_commit", "listen_addresses", "unix_socket_directories", "password_encryption")
        settings = [connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in names]
        assert settings == [("on",), ("on",), ("127.0.0.1",), ("",), ("scram-sha-256",)]

"""One stack per home: the first to come starts it, the others join, and nobody leaves anything behind."""

import contextlib
import fcntl
import json
import os
import socket
import stat
import sys
import time
from pathlib import Path

import psycopg
import pytest

from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.local.stack import Service, Stack, missing_services, open_stack
from kfm_pipelines_tests.fixtures.sites.processes import eventually, mentioning, says, script

BOTH = frozenset(Service)

OPENER = """
import sys, pathlib
from kfm_pipelines.local.stack import open_stack
with open_stack(pathlib.Path(sys.argv[1]), environ={}) as stack:
    print(stack.owned, stack.environment["KFM_POSTGRES_URL"], stack.environment["AWS_ENDPOINT_URL"], flush=True)
    sys.stdin.readline() if len(sys.argv) < 3 else __import__("time").sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({}, BOTH),
        ({"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm"}, {Service.AWS}),
        ({"AWS_ENDPOINT_URL": "http://elsewhere"}, {Service.POSTGRES}),
        ({"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm", "AWS_ENDPOINT_URL": "http://elsewhere"}, set()),
        ({"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm", "KFM_AWS": "real"}, set()),
        ({"KFM_AWS": "embedded", "AWS_ENDPOINT_URL": ""}, BOTH),
        # Credentials lying about in a shell are no wish to use that account.
        ({"AWS_PROFILE": "work", "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "x"}, BOTH),
    ],
)
def test_only_what_is_missing_is_embedded(environ: dict[str, str], missing: set[Service]) -> None:
    assert missing_services(environ) == missing


def test_an_unknown_kind_of_aws_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="KFM_AWS must be embedded or real, not 'azure'"):
        missing_services({"KFM_AWS": "azure"})


def test_nothing_is_started_or_written_when_both_are_given(new_home: Path) -> None:
    given = {"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm", "AWS_ENDPOINT_URL": "http://elsewhere"}
    home = new_home / "home"
    with open_stack(home, environ=given) as stack:
        assert stack == Stack({**given, "KFM_HOME": str(home)}, owned=False)
    assert not home.exists()


def test_a_given_postgres_is_passed_on_and_not_started(new_home: Path) -> None:
    with open_stack(new_home, environ={"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm"}) as stack:
        assert stack.environment["KFM_POSTGRES_URL"] == "postgresql://elsewhere/kfm"
        assert stack.environment["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    assert not (new_home / "postgres").exists()


def test_without_the_local_extra_it_says_what_to_do(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ministack", None)
    with (
        pytest.raises(
            SettingsInvalid, match=r"needs ministack: install kfm-pipelines\[local\], or set KFM_POSTGRES_URL"
        ),
        open_stack(new_home, environ={}),
    ):
        pass


@pytest.mark.slow
def test_the_owner_starts_and_stops_it(new_home: Path) -> None:
    home = new_home / "new" / "home"
    with open_stack(home, environ={}) as stack:
        assert stack.owned
        assert stack.environment["KFM_HOME"] == str(home)
        with psycopg.connect(stack.environment["KFM_POSTGRES_URL"]) as connection:
            assert connection.execute("SELECT current_database()").fetchone() == ("kfm",)
    assert not mentioning(home)
    assert not (home / "stack.json").exists()


@pytest.mark.slow
def test_what_it_writes_is_for_us_only(home: Path) -> None:
    with open_stack(home, environ={}):
        assert stat.S_IMODE((home / "stack.json").stat().st_mode) == 0o600
        # Postgres runs as another user when we are root and has to pass through, but not to look around.
        assert stat.S_IMODE(home.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
        assert all(stat.S_IMODE((home / name).stat().st_mode) == 0o700 for name in ("logs", "aws", "postgres"))


def test_a_second_process_joins_and_leaves_it_running(home: Path) -> None:
    with open_stack(home, environ={}) as stack:
        joiner = script(OPENER, home, 0)
        urls = [stack.environment["KFM_POSTGRES_URL"], stack.environment["AWS_ENDPOINT_URL"]]
        assert says(joiner).split() == ["False", *urls]
        assert joiner.wait(10) == 0
        psycopg.connect(stack.environment["KFM_POSTGRES_URL"]).close()


@pytest.mark.slow
def test_of_two_at_once_one_starts_it_and_the_other_joins(new_home: Path) -> None:
    openers = [script(OPENER, new_home, 3) for _ in range(2)]
    (owned_1, *urls_1), (owned_2, *urls_2) = (says(opener).split() for opener in openers)
    assert {owned_1, owned_2} == {"True", "False"}
    assert urls_1 == urls_2
    assert [opener.wait(20) for opener in openers] == [0, 0]
    assert not mentioning(new_home)


def test_a_killed_owner_leaves_no_process_and_no_damage(home: Path) -> None:
    owner = script(OPENER, home, 300)
    _, postgres_url, _ = says(owner).split()
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    owner.kill()
    owner.wait()
    assert eventually(lambda: not mentioning(home)), mentioning(home)
    with (
        open_stack(home, environ={}) as stack,
        psycopg.connect(stack.environment["KFM_POSTGRES_URL"]) as connection,
    ):
        assert stack.owned
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_a_killed_owners_successor_may_come_at_once(home: Path) -> None:
    owner = script(OPENER, home, 300)
    says(owner)
    owner.kill()
    owner.wait()
    with open_stack(home, environ={}) as stack, psycopg.connect(stack.environment["KFM_POSTGRES_URL"]):
        assert stack.owned


def test_endpoints_without_an_owner_mean_nothing(home: Path) -> None:
    stale = {"KFM_POSTGRES_URL": "postgresql://127.0.0.1:1/kfm", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    (home / "stack.json").write_text(json.dumps(stale))
    with open_stack(home, environ={}) as stack:
        assert stack.owned
        assert stack.environment["AWS_ENDPOINT_URL"] != "http://127.0.0.1:1"


def locked(file: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.slow
def test_a_joiner_is_not_misled_by_what_a_killed_owner_left(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        stale = {
            "KFM_POSTGRES_URL": f"postgresql://127.0.0.1:{port}/kfm",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }
        (home / "stack.json").write_text(json.dumps(stale))
        owner = script(OPENER, home, 3)
        assert eventually(lambda: locked(home / "stack.lock"))
        with open_stack(home, environ={}) as joined:
            assert not joined.owned
            assert says(owner).split()[2] == joined.environment["AWS_ENDPOINT_URL"]
    assert owner.wait(10) == 0


def test_joining_a_stack_that_lacks_what_we_need_is_refused(new_home: Path) -> None:
    with (
        open_stack(new_home, environ={"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm"}),
        pytest.raises(SettingsInvalid, match="has no KFM_POSTGRES_URL"),
        open_stack(new_home, environ={}),
    ):
        pass


def test_a_failed_start_stops_what_did_start(new_home: Path) -> None:
    (new_home / "postgres").mkdir()
    (new_home / "postgres" / "PG_VERSION").write_text("18\n")  # a cluster that cannot be one
    started = time.monotonic()
    with pytest.raises(Exception, match="Postgres"), open_stack(new_home, environ={}):
        pass
    assert not mentioning(new_home)
    assert time.monotonic() - started < 30

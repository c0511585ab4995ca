"""One stack per home: the first process starts it, others join, and nothing is left running."""

import json
import os
import socket
import stat
import sys
from pathlib import Path

import psycopg
import pytest

from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.local.stack import Service, Stack, missing_services, open_stack, running_services
from kfm_pipelines_tests.fixtures.sites.processes import descendants, eventually, mentioning, next_line, running, script

BOTH = frozenset(Service)
WITHOUT_GRAPH = {"KFM_GRAPH": "off"}

OPENER = """
import sys, pathlib
from kfm_pipelines.local.stack import open_stack, running_services
with open_stack(pathlib.Path(sys.argv[1]), environ={"KFM_GRAPH": "off"}) as stack:
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
        # Credentials in a shell do not mean that the account should be used.
        ({"AWS_PROFILE": "work", "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "x"}, BOTH),
    ],
)
def test_only_what_is_missing_is_embedded(environ: dict[str, str], missing: set[Service]) -> None:
    assert missing_services(environ) == missing


def test_an_unknown_value_of_kfm_aws_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="KFM_AWS must be embedded or real, not 'azure'"):
        missing_services({"KFM_AWS": "azure"})


def test_nothing_is_started_or_written_when_both_are_given(new_home: Path) -> None:
    given = {"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm", "AWS_ENDPOINT_URL": "http://elsewhere"}
    home = new_home / "home"
    with open_stack(home, environ=given) as stack:
        assert stack == Stack({**given, "KFM_HOME": str(home)}, owned=False)
    assert not home.exists()


def test_without_the_local_extra_the_error_names_the_remedy(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ministack", None)
    with (
        pytest.raises(
            SettingsInvalid, match=r"needs ministack: install kfm-pipelines\[local\], or set KFM_POSTGRES_URL"
        ),
        open_stack(new_home, environ=WITHOUT_GRAPH),
    ):
        pass


@pytest.mark.slow
def test_the_owner_starts_and_stops_it_and_others_join(home: Path) -> None:
    home = home / "new" / "home"
    with open_stack(home, environ=WITHOUT_GRAPH) as stack:
        assert stack.owned
        assert stack.environment["KFM_HOME"] == str(home)
        assert stat.S_IMODE((home / "stack.json").stat().st_mode) == 0o600
        # For root, Postgres runs as another user, who has to pass through the home but not to list it.
        assert stat.S_IMODE(home.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
        assert all(stat.S_IMODE((home / name).stat().st_mode) == 0o700 for name in ("logs", "aws", "postgres"))

        joiner = script(OPENER, home, 0)
        urls = [stack.environment["KFM_POSTGRES_URL"], stack.environment["AWS_ENDPOINT_URL"]]
        assert next_line(joiner).split() == ["False", *urls]
        assert joiner.wait(10) == 0
        with psycopg.connect(stack.environment["KFM_POSTGRES_URL"]) as connection:
            assert connection.execute("SELECT current_database()").fetchone() == ("kfm",)
        assert {**running_services(home, environ=WITHOUT_GRAPH), "KFM_HOME": str(home)} == stack.environment
        assert "AWS_ENDPOINT_URL" not in running_services(home, environ={"AWS_ENDPOINT_URL": "http://elsewhere"})
        assert "AWS_ACCESS_KEY_ID" not in running_services(home, environ={"KFM_AWS": "real"})
    assert not mentioning(home)
    assert not (home / "stack.json").exists()
    assert running_services(home, environ=WITHOUT_GRAPH) == {}


@pytest.mark.slow
def test_a_killed_owner_leaves_no_process_and_no_damage(home: Path) -> None:
    """Its successor may start at once, and is not misled by the endpoints that the owner left behind."""
    owner = script(OPENER, home, 300)
    _, postgres_url, aws_url = next_line(owner).split()
    family = descendants(owner.pid)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    owner.kill()
    owner.wait()
    with (
        open_stack(home, environ=WITHOUT_GRAPH) as stack,
        psycopg.connect(stack.environment["KFM_POSTGRES_URL"]) as connection,
    ):
        assert stack.owned
        assert stack.environment["AWS_ENDPOINT_URL"] != aws_url
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        assert eventually(lambda: not any(running(pid) for pid in family))


@pytest.mark.slow
def test_of_two_at_once_one_starts_it_and_the_other_joins(home: Path) -> None:
    """Neither is misled by endpoints without an owner, even if a stranger listens there."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        stale = [f"postgresql://127.0.0.1:{port}/kfm", f"http://127.0.0.1:{port}"]
        document = {"KFM_POSTGRES_URL": stale[0], "AWS_ENDPOINT_URL": stale[1]}
        (home / "stack.json").write_text(json.dumps(document))
        openers = [script(OPENER, home) for _ in range(2)]
        (owned_1, *urls_1), (owned_2, *urls_2) = (next_line(opener).split() for opener in openers)
    assert {owned_1, owned_2} == {"True", "False"}
    assert urls_1 == urls_2 != stale
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.close()
    assert [opener.wait(20) for opener in openers] == [0, 0]
    assert not mentioning(home)


@pytest.mark.slow
def test_a_given_postgres_is_not_started_and_a_joiner_without_one_is_refused(new_home: Path) -> None:
    with open_stack(new_home, environ={"KFM_POSTGRES_URL": "postgresql://elsewhere/kfm"}) as stack:
        assert stack.environment["KFM_POSTGRES_URL"] == "postgresql://elsewhere/kfm"
        assert stack.environment["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
        with pytest.raises(SettingsInvalid, match="has no KFM_POSTGRES_URL"), open_stack(new_home, WITHOUT_GRAPH):
            pass
    assert not (new_home / "postgres").exists()


@pytest.mark.slow
def test_a_failed_start_stops_what_did_start(new_home: Path) -> None:
    (new_home / "postgres").mkdir()
    (new_home / "postgres" / "PG_VERSION").write_text("18\n")  # an invalid cluster
    with pytest.raises(Exception, match="Postgres"), open_stack(new_home, environ=WITHOUT_GRAPH):
        pass
    assert not mentioning(new_home)

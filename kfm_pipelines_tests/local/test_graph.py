"""The embedded graph: private, on the loopback interface only, and nothing that anything else depends on."""

import logging
import stat
from importlib.util import find_spec
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from kfm_pipelines.local import graph
from kfm_pipelines.local.stack import open_stack, running_services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines_tests.fixtures.sites.processes import mentioning


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, True),
        ({"KFM_GRAPH": "off"}, False),
        ({"KFM_GRAPH": "OFF"}, False),
        ({"KFM_GRAPH_URL": "bolt://elsewhere:7687"}, False),
        ({"KFM_GRAPH_URL": ""}, True),
    ],
)
def test_it_is_started_unless_there_is_another_or_it_is_off(environ: dict[str, str], wanted: bool) -> None:
    assert graph.is_wanted(environ) is wanted


def test_without_the_wheel_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "find_spec", lambda name: None if name == "arcadedb_embedded" else find_spec(name))
    assert not graph.is_wanted({})


@pytest.mark.slow
def test_it_is_part_of_the_stack_and_keeps_its_data(new_home: Path) -> None:
    for round_ in range(2):
        with open_stack(new_home, environ={}) as stack:
            settings = load_settings(stack.environment)
            assert settings.graph_url == stack.environment["KFM_GRAPH_URL"]
            assert {**running_services(new_home, environ={}), "KFM_HOME": str(new_home)} == stack.environment
            assert "KFM_GRAPH_URL" not in running_services(new_home, environ={"KFM_GRAPH": "off"})
            with open_graph(settings) as opened:
                opened.write(lambda run: run("CREATE (:Place {id: 'kept'})"))
                assert opened.read(lambda run: run("MATCH (n) RETURN count(n) AS n")) == [{"n": round_ + 1}]
            folder = new_home / "graph"
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
            password = (folder / "password").read_text()
            assert password in settings.logs.secrets
            assert password not in repr(settings)
            assert _addresses(new_home) == {"127.0.0.1"}
        assert not mentioning(new_home)
        assert password not in (new_home / "logs" / "graph.log").read_text()
    assert "ArcadeDB Server is down" in (new_home / "logs" / "graph.log").read_text()


def _addresses(home: Path) -> set[str]:
    """Returns where the processes of the graph listen."""
    running = psutil.process_iter(["cmdline"])
    servers = [one for one in running if str(home / "graph") in (one.info["cmdline"] or [])]
    listening = [at for one in servers for at in one.net_connections("inet") if at.status == psutil.CONN_LISTEN]
    return {at.laddr.ip.removeprefix("::ffff:") for at in listening}


@pytest.mark.slow
def test_a_lost_password_is_replaced(new_home: Path) -> None:
    for _ in range(2):
        server = graph.start_graph(new_home)
        assert server is not None
        try:
            environment = graph.graph_environment(new_home, server.url)
            with open_graph(load_settings({"KFM_POSTGRES_URL": "postgresql://x", **environment})) as opened:
                opened.server()
        finally:
            server.process.stop()
        (new_home / "graph" / "password").unlink()


@pytest.mark.slow
def test_everything_else_runs_when_it_cannot_start(
    new_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_broken_java(new_home)))
    with caplog.at_level(logging.WARNING), open_stack(new_home, environ={}) as stack:
        assert "KFM_GRAPH_URL" not in stack.environment
        assert stack.environment["KFM_POSTGRES_URL"]
    [line] = [record.getMessage() for record in caplog.records if "graph" in record.getMessage()]
    assert line.startswith("there is no knowledge graph: graph ended while starting; its log is ")


def _broken_java(home: Path) -> Path:
    folder = home / "broken" / "arcadedb_embedded"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise OSError('no Java')\n")
    folder.parent.chmod(0o755)
    return folder.parent

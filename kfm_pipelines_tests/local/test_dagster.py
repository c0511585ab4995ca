"""Dagster's UI and daemon run on loopback, on the given stack, and leave nothing running."""

import json
import urllib.request
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from kfm_pipelines import settings
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.local.process import free_port
from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.sites.processes import descendants, eventually, next_line, running, script

INSTANCE = """
storage: {postgres: {postgres_url: {env: KFM_DAGSTER_POSTGRES_URL}}}
telemetry: {enabled: false}
"""
DEFINITIONS = """
import dagster
@dagster.asset
def trivial() -> None: ...
defs = dagster.Definitions(assets=[trivial])
"""
SERVER = """
import json, pathlib, sys, time
from kfm_pipelines import settings
from kfm_pipelines.local.dagster import serve_dagster
settings.PACKAGE = pathlib.Path(sys.argv[1])
with serve_dagster(pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])) as server:
    print(server.url, flush=True)
    time.sleep(300)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Replaces our project with a trivial one: these tests are about the processes."""
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "dagster.yaml").write_text(INSTANCE)
    (tmp_path / "workspace.yaml").write_text(f"load_from: [{{python_file: {tmp_path / 'definitions.py'}}}]")
    return tmp_path / "package"


def listening(pids: list[int]) -> set[str]:
    """Returns the addresses on which these processes accept connections."""
    return {c.laddr.ip for pid in pids for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"}


def locations(url: str) -> list[str]:
    query = "{workspaceOrError{... on Workspace{locationEntries{loadStatus locationOrLoadError{__typename}}}}}"
    request = urllib.request.Request(
        f"{url}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        entries = json.load(answer)["data"]["workspaceOrError"]["locationEntries"]
    return [entry["locationOrLoadError"]["__typename"] for entry in entries]


@pytest.mark.slow
def test_it_serves_on_loopback_and_ends_with_all_its_children_when_its_parent_is_killed(
    stack: Stack, package: Path
) -> None:
    port = free_port()
    parent = script(SERVER, package, package.parent, json.dumps(dict(stack.environment)), port)
    url = next_line(parent)
    assert url == f"http://127.0.0.1:{port}"
    assert locations(url) == ["RepositoryLocation"]
    family = descendants(parent.pid)
    assert len(family) >= 5  # guard, dev, code server, webserver, daemon
    assert listening(family) == {"127.0.0.1"}
    parent.kill()
    parent.wait()
    assert eventually(lambda: not any(running(pid) for pid in family))


@pytest.mark.slow
def test_a_broken_instance_is_reported_with_its_log(
    stack: Stack, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "PACKAGE", package)
    (package.parent / "dagster.yaml").write_text("nonsense: true")
    with (
        pytest.raises(ServiceUnavailable, match=r"dagster ended while starting; its log is .*/logs/dagster\.log"),
        serve_dagster(package.parent, stack.environment),
    ):
        pass

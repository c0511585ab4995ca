"""`kfm metrics` prints or serves the metrics of a home's processes; it needs neither database nor queue."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kfm_pipelines.local.process import free_port
from kfm_pipelines_tests.fixtures.sites.command import COMMAND, kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.scrape import scraped
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.telemetry.signals import append, count


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a machine without services."""
    return {"PATH": "", "PYTHONPATH": ":".join(sys.path), "KFM_HOME": str(home), **more}


def test_it_prints_the_metrics(tmp_path: Path) -> None:
    append(tmp_path, count(4))
    result = kfm(environment(tmp_path), "metrics")
    assert (result.code, result.err) == (0, "")
    assert 'messages_received_total{queue="q"} 4.0\n' in result.out
    document = kfm(environment(tmp_path), "metrics", "--json").json
    assert document["messages_received_total"] == [{"labels": {"queue": "q"}, "value": 4}]


def test_a_missing_home_has_empty_metrics(tmp_path: Path) -> None:
    result = kfm(environment(tmp_path / "none"), "metrics")
    assert result.code == 0
    assert "# TYPE messages_received_total counter" in result.out
    assert not (tmp_path / "none").exists()


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    append(tmp_path, count(4))
    port = free_port()
    arguments = [*COMMAND, "metrics", "--serve", "--port", str(port), "--json"]
    with subprocess.Popen(arguments, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            output = "".join(process.stdout.readline() for _ in range(3))
            url = json.loads(output)["metrics"]
            assert url == f"http://127.0.0.1:{port}/metrics"
            assert 'messages_received_total{queue="q"} 4.0' in scraped(url)
            append(tmp_path, count(1))
            assert 'messages_received_total{queue="q"} 5.0' in scraped(url)
            taken = kfm(environment(tmp_path), "metrics", "--serve", "--port", str(port))
            assert taken.code == 1
            assert f"cannot listen on port {port}" in taken.err
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0


def test_a_port_without_serving_is_wrong_usage(tmp_path: Path) -> None:
    assert kfm(environment(tmp_path), "metrics", "--port", "1").code == 2


@pytest.mark.parametrize("command", ["work", "drain"])
def test_a_running_worker_serves_on_the_given_port(untouched: Site, command: str) -> None:
    port, output = free_port(), untouched.root / f"{command}.log"
    variables = {**untouched.environment, "KFM_METRICS_PORT": str(port)}
    with (
        output.open("wb") as file,
        subprocess.Popen([*COMMAND, command], env=variables, stdout=file, stderr=file) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}/metrics"
            assert eventually(lambda: url in output.read_text(), seconds=30)
            assert "# TYPE messages_received_total counter" in scraped(url)
        finally:
            process.kill()

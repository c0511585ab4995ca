"""`kfm metrics` prints or serves what the processes of a home told; it needs neither database nor queue."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kfm_pipelines.local.ports import free_port
from kfm_pipelines_tests.fixtures.sites.command import COMMAND, kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.scrape import scraped
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.telemetry.signals import append, count


def environment(home: Path, **more: str) -> dict[str, str]:
    """Of a machine that knows no services."""
    return {"PATH": "", "PYTHONPATH": ":".join(sys.path), "KFM_HOME": str(home), **more}


def test_it_prints_the_text_once(tmp_path: Path) -> None:
    append(tmp_path, count(4))
    said = kfm(environment(tmp_path), "metrics")
    assert (said.code, said.err) == (0, "")
    assert 'messages_received_total{queue="q"} 4.0\n' in said.out
    document = kfm(environment(tmp_path), "metrics", "--json").json
    assert document["messages_received_total"] == [{"labels": {"queue": "q"}, "value": 4}]


def test_a_home_that_is_not_there_has_told_nothing(tmp_path: Path) -> None:
    said = kfm(environment(tmp_path / "none"), "metrics")
    assert said.code == 0
    assert "# TYPE messages_received_total counter" in said.out
    assert not (tmp_path / "none").exists()


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    append(tmp_path, count(4))
    port = free_port()
    arguments = [*COMMAND, "metrics", "--serve", "--port", str(port), "--json"]
    with subprocess.Popen(arguments, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = "".join(process.stdout.readline() for _ in range(3))
            url = json.loads(said)["metrics"]
            assert url == f"http://127.0.0.1:{port}/metrics"
            assert 'messages_received_total{queue="q"} 4.0' in scraped(url)
            append(tmp_path, count(1))
            assert 'messages_received_total{queue="q"} 5.0' in scraped(url)
            taken = kfm(environment(tmp_path), "metrics", "--serve", "--port", str(port))
            assert taken.code == 1
            assert f"port {port} cannot be listened on" in taken.err
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0


def test_a_port_without_serving_is_wrong_usage(tmp_path: Path) -> None:
    assert kfm(environment(tmp_path), "metrics", "--port", "1").code == 2


@pytest.mark.parametrize("command", ["work", "drain"])
def test_a_worker_that_goes_on_serves_where_it_was_told_to(site: Site, command: str) -> None:
    append(site.root, count(4))
    port = free_port()
    variables = {**site.environment, "KFM_METRICS_PORT": str(port)}
    with (
        (site.root / "said").open("wb") as said,
        subprocess.Popen([*COMMAND, command], env=variables, stdout=said, stderr=said) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}/metrics"
            assert eventually(lambda: url in (site.root / "said").read_text(), seconds=30)
            assert 'messages_received_total{queue="q"} 4.0' in scraped(url)
        finally:
            process.kill()

"""Prometheus reads the metrics of all processes of a home under their declared names, and nobody can block it."""

import http.client
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.process import answers, free_port
from kfm_pipelines.telemetry.metrics import scrape
from kfm_pipelines.telemetry.metrics.instruments import MAX_SERIES
from kfm_pipelines.telemetry.metrics.names import METRICS
from kfm_pipelines.telemetry.metrics.scrape import CLIENT_TIMEOUT_SECONDS, Exposition, serve_metrics
from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.signals import append, count, settings_in


def emit_everything(home: Path) -> None:
    """Emits every metric once, with label values derived from their names."""
    telemetry = open_telemetry(settings_in(home))
    for metric in METRICS:
        labels = {name: f'a "{name}" \\ of it' for name in metric.labels}
        if metric.kind == "counter":
            telemetry.metrics.count(metric.name, 3, **labels)
        elif metric.kind == "gauge":
            telemetry.metrics.set(metric.name, 0.5, **labels)
        else:
            telemetry.metrics.observe(metric.name, 300, **labels)
    telemetry.close()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    append(tmp_path, count(4))
    with serve_metrics(tmp_path / "telemetry", free_port()) as url:
        yield int(url.split(":")[2].partition("/")[0])


def ask(port: int, method: str = "GET", path: str = "/metrics") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_names_and_labels_are_those_declared(tmp_path: Path) -> None:
    emit_everything(tmp_path)
    text = Exposition(tmp_path / "telemetry").text().decode()
    names = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    expected = set()
    for metric in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        expected |= {metric.prometheus + suffix for suffix in suffixes}
    assert names == expected
    families = {sample.name: sample for one in text_string_to_metric_families(text) for sample in one.samples}
    for metric in METRICS:
        sample = families[metric.prometheus + ("_sum" if metric.kind == "histogram" else "")]
        assert sample.labels == {name: f'a "{name}" \\ of it' for name in metric.labels}
        assert sample.value == {"counter": 3, "gauge": 0.5, "histogram": 300}[metric.kind]


def test_every_metric_is_described_before_it_has_a_value(tmp_path: Path) -> None:
    lines = Exposition(tmp_path / "telemetry").text().decode().splitlines()
    for metric in METRICS:
        assert f"# HELP {metric.prometheus} {metric.description}" in lines
        typed = metric.kind if metric.kind != "counter" or metric.name.endswith("_total") else "untyped"
        assert f"# TYPE {metric.prometheus} {typed}" in lines


def test_buckets_hold_everything_below_their_bound(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    for value in (0.001, 0.3, 0.4, 10**6):
        telemetry.metrics.observe("processing_latency_seconds", value, stage="mask")
    telemetry.close()
    text = Exposition(tmp_path / "telemetry").text().decode()
    for bound, below in (("0.005", 1), ("0.25", 1), ("0.5", 3), ("21600.0", 3), ("+Inf", 4)):
        assert f'processing_latency_seconds_bucket{{le="{bound}",stage="mask"}} {below}.0' in text
    assert 'processing_latency_seconds_count{stage="mask"} 4.0' in text


def test_invented_names_do_not_fill_the_exposition(tmp_path: Path) -> None:
    append(tmp_path, *(count(1, queue=f"made-up-{number}") for number in range(3000)))
    text = Exposition(tmp_path / "telemetry").text().decode()
    assert text.count("messages_received_total{") == MAX_SERIES + 1


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_objects_only_to_required_names(tmp_path: Path) -> None:
    emit_everything(tmp_path)
    text = Exposition(tmp_path / "telemetry").text()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    complaints = checked.stderr.decode().splitlines()
    assert checked.returncode in (0, 3), complaints  # 3: names it would choose otherwise
    names = (
        'should not have "_count" suffix',
        "use base unit",
        "abbreviated units",
        'should not have "quantile" label',
    )
    assert all(any(name in line for name in names) for line in complaints), complaints


def test_the_next_scrape_has_new_values(tmp_path: Path, port: int) -> None:
    assert b'messages_received_total{queue="q"} 4.0' in ask(port)[1]
    append(tmp_path, count(2))
    assert b'messages_received_total{queue="q"} 6.0' in ask(port)[1]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/metrics/../metrics.jsonl", 404),
        ("GET", "/../../../../etc/passwd", 404),
        ("GET", "/metrics?name=x", 200),
        ("POST", "/metrics", 405),
        ("DELETE", "/metrics", 405),
    ],
)
def test_only_get_metrics_is_served(port: int, method: str, path: str, status: int) -> None:
    answered, body = ask(port, method, path)
    assert answered == status
    assert (b"messages_received_total" in body) == (status == 200)


@pytest.mark.parametrize(
    "nonsense", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"G" * 100_000, b"GET /metrics HTTP/9\r\n\r\n"]
)
def test_invalid_requests_disturb_nobody(port: int, nonsense: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=CLIENT_TIMEOUT_SECONDS + 5) as client:
        client.sendall(nonsense)
        assert ask(port)[0] == 200


def test_silent_clients_block_nobody_and_are_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scrape._Handler.timeout == CLIENT_TIMEOUT_SECONDS
    monkeypatch.setattr(scrape._Handler, "timeout", 0.3)
    with serve_metrics(tmp_path, free_port()) as url, ExitStack() as stack:
        port = int(url.split(":")[2].partition("/")[0])
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(60)]
        for client in clients:
            client.sendall(b"GET /met")
        assert ask(port)[0] == 200
        assert {client.recv(1000) for client in clients} == {b""}


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with serve_metrics(tmp_path, free_port()) as url:
        port = int(url.split(":")[2].partition("/")[0])
        with serve_metrics(tmp_path, port, or_any_free_port=True) as other:
            assert other != url
        with pytest.raises(ServiceUnavailable, match=str(port)), serve_metrics(tmp_path, port):
            pass


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[int]:
    """A real server that scrapes the target every second; yields its port."""
    folder.mkdir()
    job = {"job_name": "kfm", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))  # JSON is YAML
    port = free_port()
    arguments = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as process:
        try:
            until(lambda: answers(port, "/-/ready"))
            yield port
        finally:
            process.terminate()
            process.wait(30)


def until(done: Any, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)
    return found


def query(port: int, expression: str) -> list[tuple[dict[str, str], float]]:
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as answer:
        document = json.load(answer)
    assert document["status"] == "success"
    return [(one["metric"], float(one["value"][1])) for one in document["data"]["result"]]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
def test_a_real_prometheus_has_every_value(tmp_path: Path) -> None:
    emit_everything(tmp_path)
    with (
        serve_metrics(tmp_path / "telemetry", free_port()) as url,
        prometheus(tmp_path / "prometheus", url.removeprefix("http://").partition("/")[0]) as port,
    ):
        until(lambda: query(port, "messages_received_total"))
        for metric in METRICS:
            name = metric.prometheus + ("_sum" if metric.kind == "histogram" else "")
            [(labels, value)] = query(port, name)
            assert value == {"counter": 3, "gauge": 0.5, "histogram": 300}[metric.kind], metric.name
            emitted = {name: value for name, value in labels.items() if name not in ("__name__", "instance", "job")}
            assert emitted == {name: f'a "{name}" \\ of it' for name in metric.labels}
        [(_, share)] = query(port, "histogram_quantile(0.5, processing_latency_seconds_bucket)")
        assert 180 <= share <= 300
        append(tmp_path, count(60, "event_dedup_hits").replace(',"attributes":[{"key":"queue"', ',"x":[{"key":"queue"'))
        append(tmp_path, count(6, queue="q"))
        until(lambda: query(port, 'messages_received_total{queue="q"} == 6'))

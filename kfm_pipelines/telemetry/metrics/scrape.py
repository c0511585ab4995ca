"""The metrics of all processes of a home in Prometheus's text format, and a loopback HTTP endpoint that serves them.

Prometheus's client appends `_total` to the name of every counter. A counter declared under another name is therefore
exposed without a type; `rate()` works on it all the same.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from threading import Lock, Thread
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.telemetry.metrics.names import METRICS
from kfm_pipelines.telemetry.metrics.reader import Distribution, MetricsFollower

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 9464
PATH = "/metrics"
CLIENT_TIMEOUT_SECONDS = 5.0
POLL_INTERVAL_SECONDS = 0.1

_FAMILIES: Mapping[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Exposition(Collector):
    """Every declared metric, including those without a value."""

    def __init__(self, folder: Path) -> None:
        self._follower = MetricsFollower(folder)
        self._lock = Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """Returns the current metrics. Thread-safe."""
        with self._lock:
            return generate_latest(self._registry)

    def describe(self) -> list[Family]:
        """Returns nothing, so that registering does not read the file."""
        return []

    def collect(self) -> Iterator[Family]:
        totals = self._follower.totals()
        for metric in METRICS:
            is_typed = metric.kind != "counter" or metric.prometheus.endswith("_total")
            create: Any = _FAMILIES[metric.kind] if is_typed else UnknownMetricFamily
            family = create(metric.prometheus, metric.description, labels=metric.labels)
            for labels, value in totals.series(metric.name):
                if isinstance(value, Distribution):
                    bounds = [*(str(float(bound)) for bound in value.bounds), "+Inf"]
                    family.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
                else:
                    family.add_metric(labels, value)
            yield cast(Family, family)


class _Server(ThreadingWSGIServer):
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """A client that disconnects early is not an error."""


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_SECONDS  # a silent client gives up its thread

    def log_message(self, *_: object) -> None:
        """Scrapes are not logged."""


@contextlib.contextmanager
def serve_metrics(folder: Path, port: int, *, or_any_free_port: bool = False) -> Iterator[str]:
    """Serves GET /metrics on the loopback interface and yields the URL."""
    application = _application(Exposition(folder))
    try:
        server = _listen(application, port)
    except OSError as error:
        if not or_any_free_port:
            raise ServiceUnavailable(f"cannot listen on port {port}: {error.strerror}") from None
        server = _listen(application, 0)
    Thread(target=server.serve_forever, args=(POLL_INTERVAL_SECONDS,), name="kfm-metrics", daemon=True).start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()


def _listen(application: Any, port: int) -> Any:
    return make_server(LOOPBACK, port, application, _Server, handler_class=_Handler)


def _application(exposition: Exposition) -> Callable[[Mapping[str, Any], Callable[..., Any]], Iterable[bytes]]:
    def respond(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET":
            start_response("405 Method Not Allowed", [("Allow", "GET")])
            return []
        if environ["PATH_INFO"] != PATH:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [f"there is only {PATH}\n".encode()]
        text = exposition.text()
        start_response("200 OK", [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(text)))])
        return [text]

    return respond

"""An HTTP endpoint of this machine alone, where Prometheus asks for the metrics: GET /metrics, and nothing else.

Each client has a thread of its own and only so much time, so that one who is slow, silent or talks nonsense keeps
nobody else waiting.
"""

import contextlib
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Thread, Timer
from typing import Any

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.telemetry.metrics.exposition import CONTENT_TYPE, Exposition

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 9464
PATH = "/metrics"
CLIENT_TIMEOUT_SECONDS = 5.0
MAX_CLIENTS = 50
POLL_INTERVAL_SECONDS = 0.1


class MetricsServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, port: int) -> None:
        self.exposition = Exposition(folder)
        self._client_slots = BoundedSemaphore(MAX_CLIENTS)
        super().__init__((LOOPBACK, port), _ScrapeHandler)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}{PATH}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, unless there are very many already: those who have used up their time make room."""
        if self._client_slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._client_slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle is nobody's business."""


class _ScrapeHandler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "kfm"
    sys_version = ""
    timeout = CLIENT_TIMEOUT_SECONDS

    def handle(self) -> None:
        with self._time_limit():
            super().handle()

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"there is only {PATH}")
            return
        self._limit_timer.cancel()  # the first one to ask waits while the whole file is read
        text = self.server.exposition.text()
        with self._time_limit():
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nobody reads a log of scrapes."""

    @contextlib.contextmanager
    def _time_limit(self) -> Iterator[None]:
        """The timeout above is for one read or write; a client that sends a byte now and then would never meet it."""
        self._limit_timer = Timer(CLIENT_TIMEOUT_SECONDS, self._disconnect)
        self._limit_timer.daemon = True
        self._limit_timer.start()
        try:
            yield
        finally:
            self._limit_timer.cancel()

    def _disconnect(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serve_metrics(folder: Path, port: int, *, or_any_free_port: bool = False) -> Iterator[str]:
    """Answer as long as the context is open; yield the address. With `or_another` any free port will do when this one
    cannot be had."""
    server = _bind(folder, port, or_any_free_port)
    thread = Thread(target=server.serve_forever, args=(POLL_INTERVAL_SECONDS,), name="kfm-metrics", daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()


def _bind(folder: Path, port: int, or_any_free_port: bool) -> MetricsServer:
    try:
        return MetricsServer(folder, port)
    except OSError as error:
        if or_any_free_port:
            return MetricsServer(folder, 0)
        raise ServiceUnavailable(f"port {port} cannot be listened on: {error.strerror}") from None

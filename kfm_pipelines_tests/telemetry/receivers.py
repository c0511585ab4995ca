"""Collectors for OTLP over HTTP, on this machine: one that takes what it is sent, and some that do not."""

import gzip
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Receiver:
    """What has arrived, parsed."""

    address: str = ""
    spans: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    requests: int = 0

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.headers.append(headers)
        data = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for of_process in ExportMetricsServiceRequest.FromString(data).resource_metrics:
                self.metrics += [metric for scope in of_process.scope_metrics for metric in scope.metrics]

    def last(self, name: str) -> Any:
        return [metric for metric in self.metrics if metric.name == name][-1]


@contextmanager
def receiver(status: int = 200, answer: bytes = b"", delay: float = 0.0) -> Iterator[Receiver]:
    taken = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.requests += 1
            time.sleep(delay)
            if answer:
                self.wfile.write(answer)
                return
            if status == 200:
                taken.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    taken.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def black_hole() -> Iterator[str]:
    """The system accepts connections for it, and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def full_backlog() -> Iterator[str]:
    """Connections are not even accepted."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listening.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}"


@contextmanager
def nobody() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def _bad(status: int = 200, answer: bytes = b"", delay: float = 0.0) -> Iterator[str]:
    with receiver(status, answer, delay) as taken:
        yield taken.address


BAD: dict[str, Callable[[], Any]] = {
    "refused": nobody,
    "black hole": black_hole,
    "full backlog": full_backlog,
    "500": lambda: _bad(500),
    "503": lambda: _bad(503),
    "slow": lambda: _bad(delay=30),
    "garbage": lambda: _bad(answer=b"\x00\xff garbage\r\n\r\n" * 100),
}

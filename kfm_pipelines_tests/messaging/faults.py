"""AWS having a bad day, on the wire: batch calls that succeed in part, and an endpoint that is gone for a while."""

import socket
import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders


@contextmanager
def partly_failing(client: Any, operation: str, every: int = 2) -> Iterator[list[str]]:
    """Of each batch every second entry never reaches the service, which answers 200 and names it in `Failed`."""
    event = f"sqs.{operation}"
    dropped: list[dict[str, Any]] = []
    failed: list[str] = []

    def drop(params: dict[str, Any], **_: object) -> dict[str, Any]:
        entries = params["Entries"]
        dropped[:] = entries[1::every]
        return {**params, "Entries": [entry for entry in entries if entry not in dropped]}

    def answer(parsed: dict[str, Any], **_: object) -> None:
        lost = [{"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"} for entry in dropped]
        parsed.setdefault("Failed", []).extend(lost)
        failed.extend(entry["Id"] for entry in dropped)

    client.meta.events.register(f"provide-client-params.{event}", drop)
    client.meta.events.register(f"after-call.{event}", answer)
    try:
        yield failed
    finally:
        client.meta.events.unregister(f"provide-client-params.{event}", drop)
        client.meta.events.unregister(f"after-call.{event}", answer)


@contextmanager
def answering_500(client: Any, operation: str, calls: Container[int]) -> Iterator[None]:
    """The service answers these calls, counted from 1, with an error of its own."""
    made = 0

    def answer(request: Any, **_: object) -> AWSResponse | None:
        nonlocal made
        made += 1
        return AWSResponse(request.url, 500, HTTPHeaders(), _Raw()) if made in calls else None

    client.meta.events.register(f"before-send.sqs.{operation}", answer)
    try:
        yield
    finally:
        client.meta.events.unregister(f"before-send.sqs.{operation}", answer)


class _Raw:
    """An answer without a body."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield b""


class Doorway:
    """A port in front of a service; while it is shut, nobody answers there."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (str(parts.hostname), int(parts.port or 80))
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._address = self._listener.getsockname()
        self.url = f"http://{self._address[0]}:{self._address[1]}"
        self._serve()

    def shut(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._pairs.clear()

    def open(self) -> None:
        self._listener = socket.create_server(self._address, reuse_port=False)
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            service = socket.create_connection(self._target)
            self._pairs += [caller, service]
            for source, target in ((caller, service), (service, caller)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)

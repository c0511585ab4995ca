"""How much this process sent over the network and got from there, as far as somebody counts it: what goes to S3 does.

Bodies are counted, headers are not. A request that is tried again counts again."""

from threading import Lock


class Traffic:
    """Bytes so far. Clients may work in several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.received = 0
        self.sent = 0

    def add(self, *, received: int = 0, sent: int = 0) -> None:
        with self._lock:
            self.received += received
            self.sent += sent


traffic = Traffic()  # of this process

"""How a command that runs until somebody stops it is stopped."""

import signal
import threading
from types import FrameType


def stop_on_signal() -> threading.Event:
    """Ctrl-C or SIGTERM asks once, nicely; while things are stopping, further signals change nothing."""
    stop = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return stop

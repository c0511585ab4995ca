"""Finds free loopback ports and checks whether something responds on one."""

import contextlib
import http.client
import socket

LOOPBACK = "127.0.0.1"


def free_port(preferred: int = 0) -> int:
    """Returns the preferred port if it is free, otherwise any free one."""
    for port in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do: a port in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return int(probe.getsockname()[1])
    raise OSError("no free port on the loopback interface")


def accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def answers(port: int, path: str) -> bool:
    """Returns whether an HTTP server on this port responds with 200 to this path; ignores proxy settings."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

"""The knowledge graph of the embedded stack: ArcadeDB, where it is installed and no other graph is set.

Nothing else depends on it, so what is wrong with it is logged and everything else runs.
"""

import logging
import os
import secrets
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from kfm_pipelines.errors import KfmError
from kfm_pipelines.local.graph_server import PASSWORD_FILE, READY_FILE, USER
from kfm_pipelines.local.private_files import write_private
from kfm_pipelines.local.process import (
    LOOPBACK,
    Command,
    GuardedProcess,
    Server,
    accepts,
    free_port,
    start_on_free_port,
)

URL, SWITCH = "KFM_GRAPH_URL", "KFM_GRAPH"
_MODULE = "arcadedb_embedded"
_START_SECONDS = 30
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "SYSTEMROOT")

log = logging.getLogger(__name__)


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether a graph may be started or joined: none is set, it is installed, and KFM_GRAPH is not `off`."""
    return not environ.get(URL) and environ.get(SWITCH, "").lower() != "off" and find_spec(_MODULE) is not None


def start_graph(home: Path) -> Server | None:
    """Starts the graph. Returns None, and logs why, when it does not start."""
    folder = home / "graph"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        _ensure_password(folder)
        process, port = start_on_free_port(
            lambda port: GuardedProcess(home, "graph", _server_command(folder, port)),
            lambda port: _is_ready(folder, port),
            _START_SECONDS,
        )
    except (KfmError, OSError) as error:
        log.warning("there is no knowledge graph: %s", error)
        return None
    return Server(process, f"bolt://{LOOPBACK}:{port}")


def graph_environment(home: Path, url: str) -> dict[str, str]:
    """Returns the variables of the graph at this address; none when it does not answer."""
    try:
        password = (home / "graph" / PASSWORD_FILE).read_text()
    except OSError:
        return {}
    if not accepts(urlsplit(url).port or 0):
        return {}
    return {URL: url, "KFM_GRAPH_USER": USER, "KFM_GRAPH_PASSWORD": password}


def _ensure_password(folder: Path) -> None:
    """Creates a password; the users that a lost one belonged to are created anew."""
    file = folder / PASSWORD_FILE
    if not file.exists():
        for users in (folder / "config").glob("server-users.*"):
            users.unlink()
        write_private(file, secrets.token_urlsafe(24))


def _is_ready(folder: Path, port: int) -> bool:
    try:
        return (folder / READY_FILE).read_text() == str(port) and accepts(port)
    except FileNotFoundError:
        return False


def _server_command(folder: Path, port: int) -> Command:
    server = [sys.executable, "-m", "kfm_pipelines.local.graph_server", str(folder), str(port), str(free_port())]
    return Command(server, {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ})

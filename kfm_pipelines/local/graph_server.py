"""Runs ArcadeDB with its Bolt listener on the loopback interface until SIGTERM, then closes its files.

    python -m kfm_pipelines.local.graph_server FOLDER BOLT_PORT HTTP_PORT

The folder holds the data, the logs and the file `password`. The file `ready` names the port once the database is there.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from kfm_pipelines.local.process import LOOPBACK

DATABASE, USER, PASSWORD_FILE, READY_FILE = "kfm", "root", "password", "ready"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_JVM = ["-XX:-UsePerfData", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def main(arguments: Sequence[str]) -> None:
    folder, bolt_port, http_port = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    os.chdir(folder)  # it writes ./log
    # Java would end the process at once; blocked here and in the threads it starts, they wait for the loop below.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    from arcadedb_embedded.server import ArcadeDBServer

    server = ArcadeDBServer(
        str(folder),
        (folder / PASSWORD_FILE).read_text(),
        config={
            "host": LOOPBACK,
            "http_port": http_port,
            "server_plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
            "bolt_port": bolt_port,
            "bolt_defaultDatabase": DATABASE,
            "mode": "development",  # otherwise a mistake in a query is in its log alone
            "txWalFlush": 1,  # what was acknowledged survives a crash
            "opencypher_loadCsv_allowFileUrls": "false",
        },
        jvm_kwargs={"heap_size": "256m", "jvm_args": _JVM},
    )
    server.start()
    server.create_database(DATABASE)  # after the port is open
    (folder / READY_FILE).write_text(str(bolt_port))
    signal.sigwait(_STOP_SIGNALS)
    server.stop()
    os._exit(0)  # its files are closed; some of its threads would keep the process for another ten seconds


if __name__ == "__main__":
    main(sys.argv[1:])

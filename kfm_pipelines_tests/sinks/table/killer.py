"""Writes what waits for the table, and kills itself with SIGKILL after so many commits to the catalog."""

import os
import signal
import sys
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.sinks.flush import flush_now
from kfm_pipelines.state.outbox import Sink


def main() -> None:
    left = int(sys.argv[1])
    commit = SqlCatalog.commit_table

    def commit_and_die(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        answer = commit(*arguments, **options)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    SqlCatalog.commit_table = commit_and_die  # type: ignore[method-assign]
    services = Services(load_settings())
    flush_now(services, services.datasets["usgs/streamflow"], Sink.TABLE)


if __name__ == "__main__":
    main()

"""Sends OpenLineage events of runs. A run never fails because of it, and waits no longer than a short time-out."""

import logging
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services

if TYPE_CHECKING:
    from openlineage.client.transport import Transport

    from kfm_pipelines.catalog.lineage.openlineage import State

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 1.5


def send_run_event(services: Services, dataset: Dataset, run_id: str, state: "State") -> None:
    if services.settings.openlineage_url is None:
        return
    try:
        from kfm_pipelines.catalog.lineage.openlineage import read_run_facts, run_event

        event = run_event(dataset, read_run_facts(services, dataset, run_id, state))
        transport_to(services.settings.openlineage_url).emit(event)
    except Exception as error:  # noqa: BLE001 - lineage must never stop a run
        log.warning("could not send the %s event of run %s: %s", state, run_id, type(error).__name__)


@cache
def transport_to(url: str) -> "Transport":
    """Returns one transport per process. It does not retry: an endpoint that does not answer would delay every run."""
    if url.startswith("file:"):
        from openlineage.client.transport.file import FileConfig, FileTransport

        Path(unquote(urlsplit(url).path)).parent.mkdir(parents=True, exist_ok=True)
        return FileTransport(FileConfig(log_file_path=url, append=True))
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    return HttpTransport(HttpConfig(url=url, timeout=TIMEOUT_SECONDS, retry={"total": 0}))

"""Sends OpenLineage events of runs. A run never fails because of it, and waits no longer than a short time-out."""

import logging
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.catalog.lineage.openlineage import RunFacts, RunInput, RunOutput, State, run_event
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.state.verdicts import passed_gates
from kfm_pipelines.state.wal import Entry, Outcome, Step, entries_of_run
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    from openlineage.client.transport import Transport

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 1.5


def send_run_event(services: Services, dataset: Dataset, run_id: str, state: State) -> None:
    """Sends one event, made from what the write-ahead log has recorded of the run."""
    if services.settings.openlineage_url is None:
        return
    try:
        event = run_event(dataset, _facts(services, dataset, run_id, state))
        transport_to(services.settings.openlineage_url).emit(event)
    except Exception as error:  # noqa: BLE001 - lineage must never stop a run
        log.warning("could not send the %s event of run %s: %s", state, run_id, type(error).__name__)


@cache
def transport_to(url: str) -> "Transport":
    """Returns one transport for each process, so that connections are reused. It does not retry, because an endpoint
    that does not answer would delay every run."""
    if url.startswith("file:"):
        from openlineage.client.transport.file import FileConfig, FileTransport

        Path(unquote(urlsplit(url).path)).parent.mkdir(parents=True, exist_ok=True)
        return FileTransport(FileConfig(log_file_path=url, append=True))
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    return HttpTransport(HttpConfig(url=url, timeout=TIMEOUT_SECONDS, retry={"total": 0}))


def _facts(services: Services, dataset: Dataset, run_id: str, state: State) -> RunFacts:
    at = datetime.now(UTC)
    if state == "START":
        return RunFacts(run_id, state, at)
    steps: dict[str, dict[Step, Entry]] = defaultdict(dict)
    for entry in entries_of_run(services.database, run_id):
        steps[entry.key][entry.step] = entry
    published = {key: of for key, of in steps.items() if Step.COMMIT in of and Step.PUBLISH in of}
    gates = passed_gates(services.database, {key: of[Step.PUBLISH].txn for key, of in published.items()})
    read = {one: None for of in steps.values() if Step.COMPUTE in of for one in _inputs(of)}
    failed = sum(any(entry.outcome is Outcome.FAILED for entry in of.values()) for of in steps.values())
    outputs = [_output(services, dataset, of, gates[key]) for key, of in published.items()]
    return RunFacts(run_id, state, at, tuple(read), tuple(outputs), failed)


def _output(services: Services, dataset: Dataset, of: Mapping[Step, Entry], gates: Mapping[str, bool]) -> RunOutput:
    release, policy = of[Step.PUBLISH].detail, policy_of(services, dataset)
    masks = not policy.is_open and _detail(of, Step.MASK).get("exemption") is None
    return RunOutput.from_values(
        release,
        location=f"{services.store.url}/{Layout(dataset.pipeline).processed_data(release['key'])}",
        table=published_table(dataset, policy) if masks else dataset.table,
        masked=masks,
        gates=gates,
        inputs=_inputs(of),
    )


def _inputs(of: Mapping[Step, Entry]) -> tuple[RunInput, ...]:
    return tuple(RunInput(one["uri"], one["version"]) for one in _detail(of, Step.BEGIN).get("inputs", ()))


def _detail(of: Mapping[Step, Entry], step: Step) -> Mapping[str, Any]:
    return of[step].detail if step in of else {}

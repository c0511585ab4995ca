"""Which declarations the running code has loaded: the sensor notes it, so that a command can tell whether a new or
changed declaration waits for a reload."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg
import rfc8785

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services

KEY = "kfm/loaded_declarations"
SECONDS_BETWEEN_NOTES = 60.0
_NOTED_AT = "loaded declarations noted"


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Digests of the declarations by dataset, and when the sensor was last running with them."""

    at: datetime
    digests: Mapping[str, str]

    def has(self, dataset: Dataset) -> bool:
        return self.digests.get(dataset.dataset) == declaration_digest(dataset)


def declaration_digest(dataset: Dataset) -> str:
    """Changes with every field, also with those that shape no published bytes."""
    return hashlib.sha256(rfc8785.dumps(dataset.model_dump(mode="json"))).hexdigest()[:16]


def note_loaded_code(instance: dg.DagsterInstance, services: Services) -> None:
    """Writes at most once a minute, to the storage in which Dagster's daemons keep their own notes."""
    noted: float | None = services.cache.get(_NOTED_AT)
    if noted is not None and time.monotonic() - noted < SECONDS_BETWEEN_NOTES:
        return
    digests = {name: declaration_digest(dataset) for name, dataset in services.datasets.items()}
    note = {"at": datetime.now(UTC).isoformat(), "digests": digests}
    instance.run_storage.set_cursor_values({KEY: json.dumps(note)})
    services.cache[_NOTED_AT] = time.monotonic()


def read_loaded_code(instance: dg.DagsterInstance) -> LoadedCode | None:
    """Returns None if no sensor has run yet."""
    note = instance.run_storage.get_cursor_values({KEY}).get(KEY)
    if note is None:
        return None
    found = json.loads(note)
    return LoadedCode(datetime.fromisoformat(found["at"]), found["digests"])

"""Runs the candidate on chosen published keys, in the shadow tier. Errors never fail the run."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from kfm_pipelines.care.governance import governance_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.canary.candidate import CanaryCandidate, is_canary_key, load_canary_candidate
from kfm_pipelines.operations.canary.shadow_run import ShadowRun, record_cost
from kfm_pipelines.operations.canary.tables import KeyComparison, find_comparison, record_comparison
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.table import inputs_hash
from kfm_pipelines.stages.publish.read_back import published_data
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.keys import keys_of_other_datasets
from kfm_pipelines.state.revisions import current_revision
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.configure import error_fields

log = logging.getLogger(__name__)


class CanaryRun:
    def __init__(self, services: Services, dataset: Dataset, run_id: str) -> None:
        self._services = services
        self._dataset = dataset
        self._run_id = run_id
        self._layout = Layout(dataset.pipeline)
        self.skipped: dict[str, str] = {}  # why there was nothing to compare
        self.failed: dict[str, str] = {}  # why a key could not be compared, other than the candidate

    def compare(self, keys: Sequence[str]) -> list[KeyComparison]:
        killed = kill_switch.killed_datasets(self._services.database).get(self._dataset.dataset)
        if killed is not None:
            self.skipped = dict.fromkeys(keys, str(killed))
            return []
        found: list[KeyComparison] = []
        canary = self._dataset.canary
        # Another dataset may mask what this one would display.
        self.skipped = keys_of_other_datasets(self._services.database, self._dataset.dataset, keys)
        for key in keys:
            if key not in self.skipped and canary and is_canary_key(key, canary.transform_version, canary.fraction):
                with self._isolate_errors(key):
                    found.extend(self._compare_key(key))
        return found

    def _compare_key(self, key: str) -> Iterator[KeyComparison]:
        database, candidate = self._services.database, self._candidate
        current = current_revision(database, key)
        if current is None:
            self.skipped[key] = "nothing of it is published"
            return
        known = find_comparison(database, key, candidate.digest, current.content_hash)
        if known is not None and known.good:
            yield known
            return
        objects = self._shadow_run.fetch_objects(key)
        if inputs_hash(governance_of(self._services, self._dataset).config_digest(key), objects) != current.inputs_hash:
            self.skipped[key] = f"its objects are not those of revision {current.revision}; newer events wait"
            return
        # Before the run, because an overdue policy or a missing secret is no fault of the candidate.
        rules = governance_of(self._services, candidate.declaration).rules_for(key)
        published = published_data(self._services.store, self._layout, current)
        result = self._shadow_run.run(key, objects, published, rules)
        compared = KeyComparison(
            dataset=self._dataset.dataset,
            key=key,
            candidate_version=candidate.version,
            candidate_digest=candidate.digest,
            content_hash=current.content_hash,
            good=not result.faults,
            report=result.as_report(),
            run_id=self._run_id,
        )
        record_comparison(database, compared)
        yield compared

    @cached_property
    def _candidate(self) -> CanaryCandidate:
        return load_canary_candidate(self._services, self._dataset)

    @cached_property
    def _shadow_run(self) -> ShadowRun:
        one = self._candidate
        return ShadowRun(self._services, self._dataset, one.declaration, one.canary.tolerance, one.version)

    @contextmanager
    def _isolate_errors(self, key: str) -> Iterator[None]:
        """Notes an error, because the key is published whether or not it can be compared."""
        try:
            with record_cost(self._services, self._run_id, self._dataset.dataset, key):
                yield
        except KfmError as error:
            self.failed[key] = str(error).removeprefix(f"{key}: ")
        except Exception as error:  # noqa: BLE001 - its message may quote data
            log.warning("%s was not compared", key, extra={"idempotency_key": key, **error_fields(error)})
            self.failed[key] = f"{type(error).__name__} while comparing"

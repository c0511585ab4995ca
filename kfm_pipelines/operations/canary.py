"""Canary: chosen keys that are published also go through the candidate, into the shadow tier, and are compared.

It takes no claims and writes nothing to the log, so a key's publication is never touched. What goes wrong with the
candidate is a bad comparison; what goes wrong around it leaves the key uncompared. Neither fails the run. A good
comparison stands; a bad one is made anew when the key comes by again, since nobody knows every way in which the
surroundings can fail.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kfm_pipelines.candidates import chosen
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Table
from kfm_pipelines.errors import IntegrityBroken, KfmError, Retryable
from kfm_pipelines.events import newest_per_object
from kfm_pipelines.gates.comparison import Comparison, compare
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.operations.candidacy import Candidacy, candidacy_of
from kfm_pipelines.operations.comparison_report import full_report, withheld_faults, withheld_report
from kfm_pipelines.operations.governance import Governance, Rules, governance_of
from kfm_pipelines.operations.inputs import window_of_key
from kfm_pipelines.operations.judging import fitness_to_mask, table_verdicts, unfit_to_mask
from kfm_pipelines.operations.traces import trace_of
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.compute import SourceObject, compute, inputs_hash
from kfm_pipelines.stages.mask import mask
from kfm_pipelines.stages.parquet import read_parquet, write_parquet, write_published
from kfm_pipelines.state import kills
from kfm_pipelines.state.comparisons import Compared, find_comparison, record_comparison
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.state.revisions import Revision, current_revision
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.sources import fetch

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

FAULTS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of trying the candidate on one key; no comparison when it made nothing to compare."""

    faults: tuple[str, ...]
    compared: Mapping[str, Any] = field(default_factory=dict)

    def as_report(self) -> dict[str, Any]:
        return {"faults": list(self.faults[:FAULTS_KEPT]), "faults_in_all": len(self.faults), **self.compared}


class CanaryRun:
    """One run's keys, those that are chosen one after the other."""

    def __init__(self, workshop: Workshop, dataset: Dataset, run_id: str) -> None:
        self._workshop = workshop
        self._dataset = dataset
        self._run_id = run_id
        self._layout = Layout(dataset.pipeline)
        self.skipped: dict[str, str] = {}  # why there was nothing to compare
        self.failed: dict[str, str] = {}  # why a key could not be compared, through no fault of the candidate

    def compare(self, keys: Iterable[str]) -> list[Compared]:
        found: list[Compared] = []
        stopped = kills.killed(self._workshop.database).get(self._dataset.dataset)
        if stopped is not None:
            self.skipped = dict.fromkeys(keys, str(stopped))
            return found
        for key in keys:
            if self._is_chosen(key):
                with self._undisturbed(key):
                    found.extend(self._compared(key))
        return found

    def _is_chosen(self, key: str) -> bool:
        canary = self._dataset.canary
        return canary is not None and chosen(key, canary.transform_version, canary.fraction)

    def _compared(self, key: str) -> Iterator[Compared]:
        database, candidacy = self._workshop.database, self._candidacy
        current = current_revision(database, key)
        if current is None:
            self.skipped[key] = "nothing of it is published"
            return
        known = find_comparison(database, key, candidacy.digest, current.content_hash)
        if known is not None and known.good:
            yield known
            return
        objects = self._objects(key)
        if inputs_hash(self._governance.config_digest(key), objects) != current.inputs_hash:
            self.skipped[key] = f"its objects are not those of revision {current.revision}; newer events wait"
            return
        # Before the trial: a policy that is overdue or a secret that is not there says nothing of the candidate.
        rules = self._candidate_governance.of(key)
        trial = self._trial(key, objects, self._published(current), rules)
        compared = Compared(
            dataset=self._dataset.dataset,
            key=key,
            candidate_version=candidacy.version,
            candidate_digest=candidacy.digest,
            content_hash=current.content_hash,
            good=not trial.faults,
            report=trial.as_report(),
            run_id=self._run_id,
        )
        record_comparison(database, compared)
        yield compared

    def _objects(self, key: str) -> tuple[SourceObject, ...]:
        with self._workshop.database.transaction() as connection:
            events = newest_per_object(events_of(connection, key))
        limit = self._dataset.input.max_bytes
        return tuple(SourceObject(event.asset_uri, fetch(event, limit).data, event.late) for event in events)

    def _published(self, current: Revision) -> bytes:
        data = self._workshop.store.read(self._layout.content(current.content_hash))
        if hashlib.sha256(data).hexdigest() != current.content_hash:
            raise IntegrityBroken(f"{current.key}: the published bytes are not what was published")
        return data

    def _trial(self, key: str, objects: Sequence[SourceObject], published: bytes, rules: Rules) -> Trial:
        try:
            return self._tried(key, objects, published, rules)
        except (Retryable, MemoryError, OSError):  # of the machine, not of the candidate
            raise
        except KfmError as error:
            return Trial((str(error).removeprefix(f"{key}: "),))
        except Exception as error:  # noqa: BLE001 - whatever it is, the candidate is not good; it may quote the data
            log.warning("the candidate failed on %s: %s\n%s", key, type(error).__name__, trace_of(error))
            return Trial((f"the candidate failed with {type(error).__name__}",))

    def _tried(self, key: str, objects: Sequence[SourceObject], published: bytes, rules: Rules) -> Trial:
        candidate, shadow = self._candidacy.candidate, self._layout.shadow(key, self._candidacy.version)
        self._workshop.store.discard(shadow)  # what an earlier candidate of this version made
        table = compute(candidate, objects)
        if rules.masks:
            fit = fitness_to_mask(self._workshop, candidate, key, table, write_parquet(table))
            if not fit.passed:
                raise unfit_to_mask(key, fit)
            table = mask(table, candidate, rules.policy, rules.secret).table
        declared = rules.published(candidate)
        data = write_published(table, declared)
        self._workshop.store.write(shadow, data)
        subject = self._subject(key, declared, table, data)
        verdicts = [verdict for verdict, _ in table_verdicts(self._workshop, subject) if not verdict.passed]
        findings = [f"{verdict.gate} gate: {verdict.reason}" for verdict in verdicts]
        comparison = compare(
            read_parquet(published, key), read_parquet(data, key), published, data, self._dataset.table.primary_key
        )
        places = {*self._governance.of(key).published(self._dataset).place_columns, *declared.place_columns}
        faults, report = self._told(comparison, places)
        return Trial((*findings, *faults), report)

    def _told(self, comparison: Comparison, places: Set[str]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        tolerance = self._candidacy.canary.tolerance
        if self._candidacy.is_open:
            return comparison.faults(tolerance), full_report(comparison)
        return withheld_faults(comparison, tolerance, places), withheld_report(comparison, tolerance, places)

    def _subject(self, key: str, declared: Table, table: "pa.Table", data: bytes) -> TableSubject:
        return TableSubject(
            dataset=self._candidacy.candidate,
            published=declared,
            table=table,
            data=data,
            content_hash=hashlib.sha256(data).hexdigest(),
            window=window_of_key(self._workshop.database, key),
        )

    @cached_property
    def _candidacy(self) -> Candidacy:
        return candidacy_of(self._workshop, self._dataset)

    @cached_property
    def _governance(self) -> Governance:
        return governance_of(self._workshop, self._dataset)

    @cached_property
    def _candidate_governance(self) -> Governance:
        return governance_of(self._workshop, self._candidacy.candidate)

    @contextmanager
    def _undisturbed(self, key: str) -> Iterator[None]:
        """The key is published; that it cannot be compared now is no failure of anything."""
        try:
            yield
        except KfmError as error:
            self.failed[key] = str(error).removeprefix(f"{key}: ")
        except Exception as error:  # noqa: BLE001 - an exception may quote the data it was about
            log.warning("%s was not compared: %s\n%s", key, type(error).__name__, trace_of(error))
            self.failed[key] = f"{type(error).__name__} while comparing"

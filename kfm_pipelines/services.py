"""The tools a run works with, put together once from the settings."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from random import Random, SystemRandom

from kfm_pipelines.aws.provision import provision
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.care.authorities import Authority, load_authorities
from kfm_pipelines.care.policies import Policy, load_policy
from kfm_pipelines.care.secrets import secret_of
from kfm_pipelines.catalog.trust.keys import Signer
from kfm_pipelines.catalog.trust.signer import load_signer
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset, Datasets, load_datasets
from kfm_pipelines.energy.estimate import UNKNOWN, Coefficients, Energy, energy_of, load_coefficients
from kfm_pipelines.energy.meter import RunUsage, Usage
from kfm_pipelines.errors import KfmError
from kfm_pipelines.gates.expectations import Suite, load_suite, suite_digest
from kfm_pipelines.settings import Settings
from kfm_pipelines.state.config_snapshots import freeze
from kfm_pipelines.state.database import Database, is_current, migrate
from kfm_pipelines.stores import Store, open_store
from kfm_pipelines.telemetry.process import Telemetry, open_telemetry


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    base_seconds: float = 2.0
    cap_seconds: float = 300.0
    max_attempts: int = 7

    def delay(self, attempt: int, random: Random) -> float:
        """A wait for the given attempt, counted from 1."""
        ceiling = min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt, 64))
        return random.uniform(0, ceiling)

    def exhausted(self, attempt: int) -> bool:
        return attempt >= self.max_attempts


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intake:
    """A queue that events come from, and where SQS and we put what cannot be taken."""

    queue: Queue
    dead_letters: Queue


@dataclass(frozen=True)
class Workshop:
    """Database, store, queue, declarations; opened when first used."""

    settings: Settings
    random: SystemRandom = field(default_factory=SystemRandom)
    _policies: dict[str, Policy] = field(default_factory=dict)
    _suites: dict[tuple[str | None, ...], Suite] = field(default_factory=dict)
    _secrets: dict[str, bytes] = field(default_factory=dict, repr=False)
    announced: set[str] = field(default_factory=set)  # public keys that are known to be in the store
    moments: dict[str, float] = field(default_factory=dict)  # when this process last did what is not always to be done
    runs: dict[str, RunUsage] = field(default_factory=dict)  # those that this process is executing
    today: Callable[[], date] = lambda: datetime.now(UTC).date()

    @cached_property
    def database(self) -> Database:
        return Database(self.settings.postgres_url)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Of this process; whoever has done something worth telling flushes it."""
        return open_telemetry(self.settings)

    @cached_property
    def store(self) -> Store:
        return open_store(self.settings.store_url)

    @cached_property
    def signer(self) -> Signer:
        return load_signer(self.settings)

    @cached_property
    def queue(self) -> Queue:
        return Queue(self.settings.queue)

    @cached_property
    def intakes(self) -> tuple[Intake, ...]:
        """Every queue events come from, in the order they are drained: what is urgent first."""
        settings = self.settings
        dead_letters = Queue(settings.dead_letter_queue)
        return (
            Intake(Queue(settings.priority_queue), dead_letters),
            Intake(self.queue, dead_letters),
            Intake(Queue(settings.fifo_queue), Queue(settings.fifo_dead_letter_queue)),
        )

    @cached_property
    def dead_letter_queues(self) -> tuple[Queue, ...]:
        """Each once, though several intakes may share one."""
        return tuple({intake.dead_letters.name: intake.dead_letters for intake in self.intakes}.values())

    @cached_property
    def datasets(self) -> Datasets:
        return load_datasets(self.settings.resources)

    @cached_property
    def retries(self) -> RetryPolicy:
        return RetryPolicy(base_seconds=self.settings.retry_base_seconds, max_attempts=self.settings.max_attempts)

    def policy(self, dataset: Dataset) -> Policy:
        """Read once, so that every stage of a run goes by the same one."""
        if dataset.policy not in self._policies:
            self._policies[dataset.policy] = load_policy(self.settings.resources, dataset.policy)
        return self._policies[dataset.policy]

    def suite(self, name: str, table: Table) -> Suite:
        """A suite of Great Expectations, held against the table it is about, as its file is now: a comparison
        counts for exactly one text of it."""
        asked = (name, suite_digest(self.settings.resources, name), *(column.name for column in table.columns))
        if asked not in self._suites:
            self._suites[asked] = load_suite(self.settings.resources, name, table)
        return self._suites[asked]

    @cached_property
    def authorities(self) -> Mapping[str, Authority]:
        return load_authorities(self.settings.resources, self.settings.authorities)

    @cached_property
    def coefficients(self) -> Coefficients:
        return load_coefficients(self.settings.resources)

    @cached_property
    def coefficients_digest(self) -> str:
        """Under which the ledger's entries find what they were estimated with."""
        return freeze(self.database, "energy-coefficients", self.coefficients.model_dump(mode="json"))

    def energy_of(self, usage: Usage) -> Energy:
        """Unknown when there is nothing to reckon with: work does not wait for somebody to mend that."""
        try:
            return energy_of(self.coefficients, usage)
        except KfmError as error:
            log.warning("energy is unknown: %s", error)
            return UNKNOWN

    def care_secret(self, key_id: str) -> bytes:
        """Read once: a run masks all its keys with the same one."""
        if key_id not in self._secrets:
            self._secrets[key_id] = secret_of(self.settings, key_id)
        return self._secrets[key_id]

    def close(self) -> None:
        self.database.close()
        if "telemetry" in self.__dict__:
            self.telemetry.close()


def set_up(workshop: Workshop, *, cloud: bool) -> list[str]:
    """Do what is needed and say what was done. `cloud` is for emulators, and for accounts whose owner asks for it."""
    done: list[str] = []
    if not is_current(workshop.database):
        migrate(workshop.settings.postgres_url)
        done.append("database schema")
    return done + (provision(workshop.settings, workshop.datasets) if cloud else [])

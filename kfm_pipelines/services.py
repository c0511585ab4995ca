"""The shared infrastructure of a process. What belongs to one package, such as signing keys, is opened there."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from random import SystemRandom
from typing import Any, TypeVar

from kfm_pipelines.aws.provision import provision
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.declarations.dataset import Datasets, load_datasets
from kfm_pipelines.retry_policy import RetryPolicy
from kfm_pipelines.settings import Settings
from kfm_pipelines.state.database import Database, is_current, migrate
from kfm_pipelines.state.liveness import ProcessLock
from kfm_pipelines.stores import WorkStore, open_store
from kfm_pipelines.telemetry.process import Telemetry, open_telemetry

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True)
class Intake:
    """A queue that events come from, and its dead-letter queue."""

    queue: Queue
    dead_letters: Queue


@dataclass(frozen=True)
class Services:
    """Infrastructure of one process, each part opened when first used."""

    settings: Settings
    random: SystemRandom = field(default_factory=SystemRandom)
    cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    today: Callable[[], date] = lambda: datetime.now(UTC).date()

    @cached_property
    def database(self) -> Database:
        return Database(self.settings.postgres_url)

    @cached_property
    def process_lock(self) -> ProcessLock:
        """Shows others that this process is alive, from the first use on."""
        return ProcessLock(self.database)

    @cached_property
    def telemetry(self) -> Telemetry:
        return open_telemetry(self.settings)

    @cached_property
    def store(self) -> WorkStore:
        return WorkStore(open_store(self.settings.store_url))

    @cached_property
    def queue(self) -> Queue:
        return Queue(self.settings.queue)

    @cached_property
    def intakes(self) -> tuple[Intake, ...]:
        """Every queue events come from, in the order they are drained: the urgent one first."""
        settings = self.settings
        dead_letters = Queue(settings.dead_letter_queue)
        return (
            Intake(Queue(settings.priority_queue), dead_letters),
            Intake(self.queue, dead_letters),
            Intake(Queue(settings.fifo_queue), Queue(settings.fifo_dead_letter_queue)),
        )

    @cached_property
    def dead_letter_queues(self) -> tuple[Queue, ...]:
        return tuple({intake.dead_letters.name: intake.dead_letters for intake in self.intakes}.values())

    @cached_property
    def datasets(self) -> Datasets:
        return load_datasets(self.settings.resources)

    @cached_property
    def retries(self) -> RetryPolicy:
        return RetryPolicy(self.settings.max_attempts, self.settings.retry_base_seconds)

    def load_once(self, key: Hashable, load: Callable[[], Loaded]) -> Loaded:
        """Returns what `load` returned the first time, so that all stages of a run use the same policy and secret."""
        if key not in self.cache:
            self.cache[key] = load()
        loaded: Loaded = self.cache[key]
        return loaded

    def close(self) -> None:
        if "process_lock" in self.__dict__:
            self.process_lock.close()
        self.database.close()
        if "telemetry" in self.__dict__:
            self.telemetry.close()


def set_up(services: Services, *, cloud: bool) -> list[str]:
    """Migrates the database and, with `cloud`, provisions queues, topics and buckets. Returns what was done."""
    done: list[str] = []
    if not is_current(services.database):
        migrate(services.settings.postgres_url)
        done.append("database schema")
    return done + (provision(services.settings, services.datasets) if cloud else [])

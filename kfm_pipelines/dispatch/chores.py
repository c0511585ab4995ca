"""What a tick does beside draining the queues and asking for runs; `definitions.py` lists it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kfm_pipelines.inbox.drain import DrainResult
from kfm_pipelines.services import Services

Chore = Callable[[Services], Sequence[str]]  # returns what could not be done and why


class GaugeEmitter(Protocol):
    def __call__(self, services: Services, *, at_once: bool = False) -> object: ...


@dataclass(frozen=True, slots=True)
class Chores:
    """`with_queues` is left out while the queues do not answer; `gauges` ends the tick."""

    with_queues: tuple[Chore, ...]
    always: tuple[Chore, ...]
    gauges: GaugeEmitter

    def run_after_drain(self, services: Services, drained: DrainResult) -> list[str]:
        if drained.unreachable:
            return []
        return [problem for chore in self.with_queues for problem in chore(services)]

    def run_always(self, services: Services) -> list[str]:
        return [problem for chore in self.always for problem in chore(services)]

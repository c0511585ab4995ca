"""What a tick does besides draining the queues and requesting runs; `definitions.py` lists it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kfm_pipelines.inbox.drain import DrainResult
from kfm_pipelines.services import Services

Chore = Callable[[Services], Sequence[str]]  # returns problems


@dataclass(frozen=True, slots=True)
class Chores:
    """`with_queues` is skipped while the queues are unreachable; `gauges` ends the tick."""

    with_queues: tuple[Chore, ...]
    always: tuple[Chore, ...]
    gauges: Callable[..., object]  # (services, *, at_once=False)

    def run_after_drain(self, services: Services, drained: DrainResult) -> list[str]:
        chores = () if drained.unreachable else self.with_queues
        return [problem for chore in chores for problem in chore(services)]

    def run_always(self, services: Services) -> list[str]:
        return [problem for chore in self.always for problem in chore(services)]

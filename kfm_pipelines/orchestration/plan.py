"""Which runs to ask for: due keys grouped into contiguous ranges of partitions. Pure; decides, does nothing."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kfm_pipelines.state.dispatches import DueKey

# A key that keeps failing with others around it may be what fails them: from here on it goes alone.
ALONE_AFTER_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run over keys that follow each other in the order of the partitions."""

    dataset: str
    keys: tuple[DueKey, ...]

    @property
    def run_key(self) -> str:
        parts = [key.run_key for key in self.keys]
        if len(parts) == 1:
            return parts[0]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return f"{self.dataset}#{len(parts)}#{digest}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.key for key in self.keys)


def plan_runs(dataset: str, due: Sequence[DueKey], partitions: Sequence[str], batch_size: int) -> list[PlannedRun]:
    """The fewest runs of at most `batch_size` keys, the most urgent key's run first."""
    position = {name: place for place, name in enumerate(partitions)}
    urgency = {key.key: place for place, key in enumerate(due)}
    ranges = [*_contiguous([key for key in due if not _suspect(key)], position, batch_size)]
    ranges += [(key,) for key in due if _suspect(key)]
    runs = [PlannedRun(dataset, keys) for keys in ranges]
    return sorted(runs, key=lambda run: min(urgency[name] for name in run.names))


def _suspect(key: DueKey) -> bool:
    return key.attempts >= ALONE_AFTER_ATTEMPTS


def _contiguous(keys: Iterable[DueKey], position: Mapping[str, int], batch_size: int) -> Iterable[tuple[DueKey, ...]]:
    ordered = sorted(keys, key=lambda key: position[key.key])
    current = ordered[:1]
    for before, key in pairwise(ordered):
        if position[key.key] != position[before.key] + 1 or len(current) == batch_size:
            yield tuple(current)
            current = []
        current.append(key)
    if current:
        yield tuple(current)

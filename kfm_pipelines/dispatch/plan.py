"""Which runs to ask for: due keys grouped into contiguous ranges of partitions. Pure; decides, does nothing."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kfm_pipelines.declarations import Concurrency
from kfm_pipelines.dispatch.tables import DueKey

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

    @property
    def urgent(self) -> bool:
        return any(key.urgent for key in self.keys)


def plan_runs(
    dataset: str,
    due: Sequence[DueKey],
    partitions: Sequence[str],
    batch_size: int,
    concurrency: Concurrency,
) -> list[PlannedRun]:
    """The fewest runs of at most `batch_size` keys, the first due key's run first.

    Urgent keys share no run with others: they would wait for them, and the others would pass as urgent. Nor do keys
    under different limits, because a run is counted under one.
    """
    position = {name: place for place, name in enumerate(partitions)}
    turn = {key.key: place for place, key in enumerate(due)}
    alike: dict[object, list[DueKey]] = defaultdict(list)
    for key in due:
        limit = concurrency.limit_of(key.key)
        alone = key.key if _is_suspect(key) else None
        alike[alone, key.urgent, limit.prefix if limit else None].append(key)
    ranges = [keys for group in alike.values() for keys in _contiguous_ranges(group, position, batch_size)]
    runs = [PlannedRun(dataset, keys) for keys in ranges]
    return sorted(runs, key=lambda run: min(turn[name] for name in run.names))


def _is_suspect(key: DueKey) -> bool:
    return key.attempts >= ALONE_AFTER_ATTEMPTS


def _contiguous_ranges(
    keys: Iterable[DueKey], position: Mapping[str, int], batch_size: int
) -> Iterable[tuple[DueKey, ...]]:
    ordered = sorted(keys, key=lambda key: position[key.key])
    current = ordered[:1]
    for before, key in pairwise(ordered):
        if position[key.key] != position[before.key] + 1 or len(current) == batch_size:
            yield tuple(current)
            current = []
        current.append(key)
    if current:
        yield tuple(current)

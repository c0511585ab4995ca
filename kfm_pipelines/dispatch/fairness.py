"""Whose turn it is: urgent runs first, but never only those, and no dataset twice while another waits. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence

from kfm_pipelines.dispatch.plan import PlannedRun
from kfm_pipelines.dispatch.tables import RecentDispatch

# Of so many runs in a row one is for keys that are not urgent, if any is due.
NON_URGENT_INTERVAL = 4
# How far back it is looked who had a turn: far enough for each of many datasets to have had one.
HISTORY_LENGTH = 200


class FairScheduler:
    """The turns taken so far, the latest first. They come from the database, so that a new process, or a tick with
    one free slot, goes on where the last one stopped."""

    def __init__(self, history: Iterable[RecentDispatch]) -> None:
        self._history = deque(history, maxlen=HISTORY_LENGTH)

    def choose_next(self, runs: Iterable[PlannedRun]) -> PlannedRun | None:
        """The run whose turn it is; the runs of each dataset in the order they are given."""
        urgent: list[PlannedRun] = []
        others: list[PlannedRun] = []
        for run in runs:
            (urgent if run.urgent else others).append(run)
        chosen = others if others and (not urgent or self._is_non_urgent_due()) else urgent
        return max(chosen, key=self._dispatches_since, default=None)

    def record_run(self, run: PlannedRun) -> None:
        self._history.appendleft(RecentDispatch(run.dataset, run.urgent))

    def _is_non_urgent_due(self) -> bool:
        latest: Sequence[RecentDispatch] = [*self._history][: NON_URGENT_INTERVAL - 1]
        return len(latest) == NON_URGENT_INTERVAL - 1 and all(turn.urgent for turn in latest)

    def _dispatches_since(self, run: PlannedRun) -> int:
        """How long ago its dataset had a turn of this kind; of equals the first given is the maximum."""
        mine = RecentDispatch(run.dataset, run.urgent)
        return self._history.index(mine) if mine in self._history else HISTORY_LENGTH

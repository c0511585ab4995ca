"""Stores that are real until, right before some change, their process is gone or something else happens."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.stores import Store


class Stopped(BaseException):
    """The process is gone: nobody catches this."""


@dataclass(frozen=True)
class Change:
    """One write to a store, whatever transaction and revision makes it: what is done to which path, the n-th time."""

    does: str
    path: str
    nth: int


class StoppingStore:
    """A real store whose process is stopped right before one change, or before the next once it has made so many. Keeps
    account of those it has made."""

    def __init__(self, store: Store, stop_before: Change | None = None, *, stop_after: int | None = None) -> None:
        self._store = store
        self._stop_before = stop_before
        self._stop_after = stop_after
        self.changes: list[Change] = []

    @property
    def url(self) -> str:
        return self._store.url

    def read(self, path: str) -> bytes:
        return self._store.read(path)

    def digest(self, path: str) -> str | None:
        return self._store.digest(path)

    def exists(self, path: str) -> bool:
        return self._store.exists(path)

    def paths(self, prefix: str) -> list[str]:
        return self._store.paths(prefix)

    def strangers(self, prefix: str) -> list[str]:
        return self._store.strangers(prefix)

    def write(self, path: str, data: bytes) -> None:
        self._change(self._store.write, path, data)

    def keep(self, source: str, target: str) -> None:
        self._change(self._store.keep, source, target)

    def replace(self, source: str, target: str) -> None:
        self._change(self._store.replace, source, target)

    def swap(self, source: str, target: str, expected: str | None) -> None:
        self._change(self._store.swap, source, target, expected)

    def remove(self, prefix: str) -> None:
        self._change(self._store.remove, prefix)

    def discard(self, path: str) -> None:
        self._change(self._store.discard, path)

    def _change(self, do: Callable[..., None], *arguments: Any) -> None:
        place = (do.__name__, re.sub(r"/\d+(?=[/.])", "/N", arguments[0]))
        change = Change(*place, sum((one.does, one.path) == place for one in self.changes) + 1)
        if change == self._stop_before or len(self.changes) == self._stop_after:
            raise Stopped(change)
        self.changes.append(change)
        do(*arguments)


class InterruptedStore(StoppingStore):
    """A real store where something else happens right before the first change of one kind."""

    def __init__(self, store: Store, change: str, happens: Callable[[], None]) -> None:
        super().__init__(store)
        self._happening = {change: happens}

    def _change(self, do: Callable[..., None], *arguments: Any) -> None:
        self._happening.pop(do.__name__, lambda: None)()
        super()._change(do, *arguments)

"""Keys and the leases on them, with a fencing epoch that only ever grows.

The lease says when another worker may take over; the epoch says who is too late. All times are the database's.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import Fenced, KeyBusy, KeyInvalid, KfmError
from kfm_pipelines.state.database import Database

PRIORITIES = {"low": 0, "normal": 1, "high": 2}

# Code that changes many keys first locks them in this order, in a separate statement: two processes cannot deadlock,
# and the change that follows sees the rows as they are under the lock.
LOCK_HELD = "SELECT FROM kfm.keys WHERE owner = %(owner)s ORDER BY key FOR NO KEY UPDATE"
LOCK_NAMED = "SELECT key FROM kfm.keys WHERE key = ANY(%(keys)s) ORDER BY key FOR NO KEY UPDATE"
# Includes keys that take their inputs from one of these, because they change together.
LOCK_WITH_DEPENDENTS = """
    SELECT FROM kfm.keys WHERE key = ANY(%(keys)s) OR inputs_from = ANY(%(keys)s) ORDER BY key FOR NO KEY UPDATE
"""
# For work that can wait: skips locked keys, since a publication may hold its key for as long as its upload takes.
LOCK_AVAILABLE = "SELECT key FROM kfm.keys WHERE key = ANY(%(keys)s) ORDER BY key FOR NO KEY UPDATE SKIP LOCKED"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on one key, as long as no later epoch exists."""

    key: str
    epoch: int
    attempts: int
    owner: str
    replay: str | None = None


@dataclass(frozen=True)
class Claims:
    """The claims of one owner, which is one run.

    `dataset` limits them to keys of that dataset, whose policy, kill switch and reviews apply. `skip_in_review` leaves
    keys in review alone, because taking one discards what is staged for its reviewers."""

    database: Database
    owner: str
    lease_seconds: int
    replay: str | None = None
    _: KW_ONLY
    dataset: str | None = None
    skip_in_review: bool = False

    def take(self, key: str) -> Claim:
        """Takes the key if it is free, ours, or its lease has expired. A claim for a replay leaves the key due."""
        for claim in self._take([key]):
            return claim
        raise self._refusal(key)

    def take_all(self, keys: Sequence[str]) -> tuple[list[Claim], dict[str, KfmError]]:
        """Takes all of these keys that can be taken, and returns why the others cannot."""
        claims, refused = {claim.key: claim for claim in self._take(keys, LOCK_AVAILABLE)}, {}
        for key in keys:
            if key not in claims:  # another process may have locked it for a moment
                try:
                    claims[key] = self.take(key)
                except KfmError as error:
                    refused[key] = error
        return [claims[key] for key in sorted(claims)], refused

    def _take(self, keys: Sequence[str], lock: str = LOCK_NAMED) -> list[Claim]:
        with self.database.transaction() as connection:
            locked = [row["key"] for row in connection.execute(lock, {"keys": list(keys)})]
            statement = """
                UPDATE kfm.keys
                SET epoch = epoch + 1, owner = %(owner)s, attempts = attempts + 1,
                    due_at = CASE WHEN %(replay)s::text IS NOT NULL THEN due_at END,
                    lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
                WHERE key = ANY(%(keys)s) AND (owner IS NULL OR owner = %(owner)s OR lease_until < clock_timestamp())
                  AND dataset = coalesce(%(dataset)s, dataset) AND (awaiting IS NULL OR NOT %(spares_reviews)s)
                RETURNING key, epoch, attempts
            """
            parameters = {
                "keys": locked,
                "owner": self.owner,
                "lease": self.lease_seconds,
                "replay": self.replay,
                "dataset": self.dataset,
                "spares_reviews": self.skip_in_review,
            }
            rows = connection.execute(statement, parameters).fetchall()
        return [self._claim(row) for row in rows]

    def _claim(self, row: Mapping[str, Any]) -> Claim:
        return Claim(row["key"], row["epoch"], row["attempts"], self.owner, self.replay)

    def held(self) -> dict[str, Claim]:
        """Returns the claims of this owner, ordered by key."""
        query = """
            SELECT key, epoch, attempts FROM kfm.keys
            WHERE owner = %(owner)s AND dataset = coalesce(%(dataset)s, dataset) ORDER BY key
        """
        rows = self.database.fetch(query, {"owner": self.owner, "dataset": self.dataset})
        return {row["key"]: self._claim(row) for row in rows}

    def renew(self) -> None:
        # A key locked by its own publication is safe; waiting for it would let the other leases expire.
        statement = """
            UPDATE kfm.keys SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
            WHERE key IN (SELECT key FROM kfm.keys WHERE owner = %(owner)s ORDER BY key FOR NO KEY UPDATE SKIP LOCKED)
        """
        self.database.execute(statement, {"owner": self.owner, "lease": self.lease_seconds})

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """Renews all leases periodically while the block runs; a worker that stops loses them."""
        done = threading.Event()
        keeper = threading.Thread(target=self._renew_until, args=(done,), name="lease-keeper", daemon=True)
        self.renew()
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()

    def _renew_until(self, done: threading.Event) -> None:
        while not done.wait(self.lease_seconds / 3):
            try:
                self.renew()
            except KfmError:
                # Without the database the lease expires by itself, and fencing keeps a late worker harmless.
                continue

    def _refusal(self, key: str) -> KfmError:
        rows = self.database.fetch("SELECT owner, lease_until FROM kfm.keys WHERE key = %(key)s", {"key": key})
        if not rows:
            return KeyInvalid(f"{key}: no event has named this key, so there is nothing to compute it from")
        if self.dataset is not None:
            for reason in keys_of_other_datasets(self.database, self.dataset, [key]).values():
                return KeyInvalid(reason)
        if self.skip_in_review:
            for reason in keys_in_review(self.database, [key]).values():
                return KeyBusy(reason)
        if rows[0]["lease_until"] is None:
            return KeyBusy(f"{key}: another run has just released it")
        return KeyBusy(f"{key}: held by run {rows[0]['owner']} until {rows[0]['lease_until']:%H:%M:%S %Z}")


def keys_of_other_datasets(database: Database, dataset: str, keys: Sequence[str]) -> dict[str, str]:
    """Returns the keys that belong to another dataset, with the reason to refuse each."""
    query = "SELECT key, dataset FROM kfm.keys WHERE key = ANY(%(keys)s) AND dataset <> %(dataset)s"
    rows = database.fetch(query, {"keys": list(keys), "dataset": dataset})
    return {row["key"]: wrong_dataset_reason(row["key"], row["dataset"], dataset) for row in rows}


def keys_in_review(database: Database, keys: Sequence[str]) -> dict[str, str]:
    """Returns the keys with a release in review, or decided but not yet picked up, with the reason to refuse each."""
    query = "SELECT key FROM kfm.keys WHERE key = ANY(%(keys)s) AND awaiting IS NOT NULL"
    rows = database.fetch(query, {"keys": list(keys)})
    return {row["key"]: f"{row['key']}: a release of it awaits review; that comes first" for row in rows}


def keys_awaiting_review(database: Database, keys: Sequence[str]) -> set[str]:
    """Returns those of these keys with a release that nobody has decided about."""
    query = """
        SELECT key FROM kfm.keys
        WHERE key = ANY(%(keys)s) AND awaiting IS NOT NULL AND owner IS NULL AND due_at IS NULL
    """
    return {row["key"] for row in database.fetch(query, {"keys": list(keys)})}


def wrong_dataset_reason(key: str, dataset: str, expected: str) -> str:
    return f"{key}: is a key of {dataset}, not of {expected}"


def fenced_error(claim: Claim) -> Fenced:
    return Fenced(f"{claim.key}: another worker took over after epoch {claim.epoch}")


def due_or_held_keys(database: Database, keys: Sequence[str], owner: str) -> set[str]:
    """Returns the keys that are due, abandoned, or held by this owner."""
    query = """
        SELECT key FROM kfm.keys
        WHERE key = ANY(%(keys)s)
          AND (owner = %(owner)s OR due_at <= clock_timestamp() OR lease_until < clock_timestamp())
    """
    rows = database.fetch(query, {"keys": list(keys), "owner": owner})
    return {row["key"] for row in rows}


def window_of_key(database: Database, key: str) -> tuple[datetime, datetime]:
    [row] = database.fetch("SELECT window_start, window_end FROM kfm.keys WHERE key = %(key)s", {"key": key})
    return row["window_start"], row["window_end"]


def dataset_of_key(database: Database, key: str) -> str:
    [row] = database.fetch("SELECT dataset FROM kfm.keys WHERE key = %(key)s", {"key": key})
    return str(row["dataset"])

"""Claims: a worker's lease on a key, with a fencing epoch that only ever grows.

The lease says when somebody else may take over; the epoch says who is too late. All times are the database's.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.errors import Fenced, KeyBusy, KeyInvalid, KfmError
from kfm_pipelines.state.database import Database

if TYPE_CHECKING:
    pass


PRIORITIES = {"low": 0, "normal": 1, "high": 2}

# Whoever changes many keys locks them in this order first, in a statement of its own: then no two processes wait for
# each other in a circle, and the change that follows sees the rows as they are under the lock.
LOCK_HELD = "SELECT FROM kfm.keys WHERE owner = %(owner)s ORDER BY key FOR NO KEY UPDATE"
LOCK_NAMED = "SELECT FROM kfm.keys WHERE key = ANY(%(keys)s) ORDER BY key FOR NO KEY UPDATE"
# With those that take their inputs from one of them: what changes here changes there.
LOCK_WITH_DEPENDENTS = """
    SELECT FROM kfm.keys WHERE key = ANY(%(keys)s) OR inputs_from = ANY(%(keys)s) ORDER BY key FOR NO KEY UPDATE
"""
# For work that can wait: those that nobody has locked. A publication may hold its key for as long as its upload takes.
LOCK_AVAILABLE = "SELECT key FROM kfm.keys WHERE key = ANY(%(keys)s) ORDER BY key FOR NO KEY UPDATE SKIP LOCKED"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on one key, as long as no later epoch exists."""

    key: str
    epoch: int
    attempts: int
    owner: str
    replay: str | None = None  # the one it is taken for


class Claims:
    """The claims of one owner, which is one run. With a `dataset`, on keys of that one alone: whoever works for it goes
    by its policy, its kill switch and its reviews, which say nothing of another's. Whoever makes again what is
    published `spares_reviews`: taking a key ends what was staged of it, for somebody to look at."""

    def __init__(
        self,
        database: Database,
        owner: str,
        lease_seconds: int,
        replay: str | None = None,
        *,
        dataset: str | None = None,
        skip_in_review: bool = False,
    ) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._replay = replay
        self._dataset = dataset
        self._skip_in_review = skip_in_review
        self.owner = owner

    def take(self, key: str) -> Claim:
        """Take the key if it is free, ours, or its holder has gone silent. A replay may not do what the key is due for,
        so for one the key stays due."""
        rows = self._database.fetch(
            """
            UPDATE kfm.keys
            SET epoch = epoch + 1, owner = %(owner)s, attempts = attempts + 1,
                due_at = CASE WHEN %(replay)s::text IS NOT NULL THEN due_at END,
                lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
            WHERE key = %(key)s AND (owner IS NULL OR owner = %(owner)s OR lease_until < clock_timestamp())
              AND dataset = coalesce(%(dataset)s, dataset) AND (awaiting IS NULL OR NOT %(spares_reviews)s)
            RETURNING epoch, attempts
            """,
            {
                "key": key,
                "owner": self.owner,
                "lease": self._lease_seconds,
                "replay": self._replay,
                "dataset": self._dataset,
                "spares_reviews": self._skip_in_review,
            },
        )
        if not rows:
            self._explain_refusal(key)
        return Claim(key, rows[0]["epoch"], rows[0]["attempts"], self.owner, self._replay)

    def held(self) -> dict[str, Claim]:
        """Every key this owner holds now, in the order of the keys."""
        rows = self._database.fetch(
            """
            SELECT key, epoch, attempts FROM kfm.keys
            WHERE owner = %(owner)s AND dataset = coalesce(%(dataset)s, dataset) ORDER BY key
            """,
            {"owner": self.owner, "dataset": self._dataset},
        )
        return {row["key"]: Claim(row["key"], row["epoch"], row["attempts"], self.owner, self._replay) for row in rows}

    def renew(self) -> None:
        # A key locked by its own publication is in good hands; waiting for it would let the others run out.
        self._database.execute(
            """
            UPDATE kfm.keys SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
            WHERE key IN (SELECT key FROM kfm.keys WHERE owner = %(owner)s ORDER BY key FOR NO KEY UPDATE SKIP LOCKED)
            """,
            {"owner": self.owner, "lease": self._lease_seconds},
        )

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """Renew all leases now and then while the work inside goes on; a worker that stops loses them."""
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
        while not done.wait(self._lease_seconds / 3):
            try:
                self.renew()
            except KfmError:
                # The database is away: the lease runs out by itself, and fencing keeps a late worker harmless.
                continue

    def _explain_refusal(self, key: str) -> None:
        rows = self._database.fetch("SELECT owner, lease_until FROM kfm.keys WHERE key = %(key)s", {"key": key})
        if not rows:
            raise KeyInvalid(f"{key}: no event has named this key, so there is nothing to compute it from")
        if self._dataset is not None:
            for reason in keys_of_other_datasets(self._database, self._dataset, [key]).values():
                raise KeyInvalid(reason)
        if self._skip_in_review:
            for reason in keys_in_review(self._database, [key]).values():
                raise KeyBusy(reason)
        raise KeyBusy(f"{key}: held by run {rows[0]['owner']} until {rows[0]['lease_until']:%H:%M:%S %Z}")


def keys_of_other_datasets(database: Database, dataset: str, keys: Sequence[str]) -> dict[str, str]:
    """Why some of the keys are not for whoever works for the dataset: anybody can name any key to a run."""
    rows = database.fetch(
        "SELECT key, dataset FROM kfm.keys WHERE key = ANY(%(keys)s) AND dataset <> %(dataset)s",
        {"keys": list(keys), "dataset": dataset},
    )
    return {row["key"]: wrong_dataset_reason(row["key"], row["dataset"], dataset) for row in rows}


def keys_in_review(database: Database, keys: Sequence[str]) -> dict[str, str]:
    """Those of the keys of which a release waits for somebody to decide, or for a run to take up what was decided; with
    a sentence that says so."""
    rows = database.fetch(
        "SELECT key FROM kfm.keys WHERE key = ANY(%(keys)s) AND awaiting IS NOT NULL", {"keys": list(keys)}
    )
    return {row["key"]: f"{row['key']}: a release of it awaits review; that comes first" for row in rows}


def wrong_dataset_reason(key: str, dataset: str, expected: str) -> str:
    return f"{key}: is a key of {dataset}, not of {expected}"


def fenced_error(claim: Claim) -> Fenced:
    return Fenced(f"{claim.key}: another worker took over after epoch {claim.epoch}")


def due_or_held_keys(database: Database, keys: Sequence[str], owner: str) -> set[str]:
    """Those of the keys that somebody has to work on now, or that this owner already does."""
    rows = database.fetch(
        """
        SELECT key FROM kfm.keys
        WHERE key = ANY(%(keys)s)
          AND (owner = %(owner)s OR due_at <= clock_timestamp() OR lease_until < clock_timestamp())
        """,
        {"keys": list(keys), "owner": owner},
    )
    return {row["key"] for row in rows}

"""What the tests of this folder start from: a database, events in the inbox, and keys that somebody holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from kfm_pipelines.events import IngestEvent
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.state.claims import Claim, Claims
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.state.recording import Tally, record
from kfm_pipelines_tests.events.given import declared, event
from kfm_pipelines_tests.site import create_database, drop_database

QUEUE = "kfm-ingest"
START = datetime(2025, 12, 4, tzinfo=UTC)


@contextmanager
def new_database(stack: Stack, template: str) -> Iterator[Database]:
    server, name = stack.environment["KFM_POSTGRES_URL"], f"s{uuid4().hex[:12]}"
    opened = Database(create_database(server, name, template))
    try:
        yield opened
    finally:
        opened.close()
        drop_database(server, name)


def event_of_hour(hour: int = 3, **fields: Any) -> IngestEvent:
    """An event for the key of that hour; its identity is the hour's unless the test says otherwise."""
    path = f"usgs/streamflow/{START + timedelta(hours=hour):%Y/%m/%d/%H}/streamflow.parquet"
    return event(**{"object_key": path, "identity": f"{hour:064x}", **fields})


def deliver(database: Database, *events: IngestEvent) -> Tally:
    """Each event as a message of its own, all in one batch."""
    return record(database, QUEUE, [Delivery("{}", (one,)) for one in events], declared()).tally


def known_key(database: Database, hour: int = 3) -> str:
    one = event_of_hour(hour)
    deliver(database, one)
    return one.key


def claimed(database: Database, key: str, owner: str = "run-1", lease_seconds: int = 60) -> Claim:
    return Claims(database, owner, lease_seconds).take(key)


def expire_lease(database: Database, key: str) -> None:
    database.execute(
        "UPDATE kfm.keys SET lease_until = clock_timestamp() - interval '1 ms' WHERE key = %(key)s", {"key": key}
    )


def row_of_key(database: Database, key: str) -> dict[str, Any]:
    [row] = database.fetch("SELECT * FROM kfm.keys WHERE key = %(key)s", {"key": key})
    return row

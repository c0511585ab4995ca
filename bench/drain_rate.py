"""Messages drained a second, from queue to inbox: against a bare loop of receive and delete, and as the inbox grows."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.inbox.drain import drain
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.services import Services

MESSAGES = 20_000
OBJECTS_AN_HOUR = 20
FEW_ROWS, MANY_ROWS = 1_000, 1_000_000
START = datetime(2020, 1, 1, tzinfo=UTC)


def drain_against_bare_loop(folder: Path) -> list[Measurement]:
    """Against a bare loop when there are few rows and when there are many, in one run."""
    with _stack(folder) as services:
        _fill_inbox(services, FEW_ROWS)
        _fill_queue(services, first=0)
        bare = _rate(lambda: bare_loop(services, MESSAGES))
        _fill_queue(services, first=0)
        few = _rate(lambda: _drain(services))
        _fill_inbox(services, MANY_ROWS)
        _fill_queue(services, first=MESSAGES)
        many = _rate(lambda: _drain(services))
        _fill_queue(services, first=0)
        bare_again = _rate(lambda: bare_loop(services, MESSAGES))
    return [
        Measurement("drain_against_bare_loop", few, "messages/s", bare),
        Measurement("drain_against_bare_loop_at_a_million_rows", many, "messages/s", bare_again),
        Measurement("drain_at_a_million_rows", many, "messages/s", few),
    ]


@contextmanager
def _stack(folder: Path) -> Iterator[Services]:
    with own_stack(folder) as services:
        drain(services, services.queue, budget_seconds=5)  # S3's test event
        yield services


def _rate(emptying: Callable[[], None]) -> float:
    started = time.monotonic()
    emptying()
    return MESSAGES / (time.monotonic() - started)


def bare_loop(services: Services, count: int) -> None:
    """Receives and deletes so many messages."""
    sqs, url = sqs_client(), sqs_client().get_queue_url(QueueName=services.queue.name)["QueueUrl"]
    gone = 0
    while gone < count:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
        if entries:
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]
        gone += len(messages)


def _drain(services: Services) -> None:
    recorded = 0
    while recorded < MESSAGES:
        recorded += drain(services, services.queue, budget_seconds=600).recorded


def _fill_queue(services: Services, first: int) -> None:
    send_all(services, [_body(services, number) for number in range(first, first + MESSAGES)])


def send_all(services: Services, bodies: list[str]) -> None:
    sqs, url = sqs_client(), sqs_client().get_queue_url(QueueName=services.queue.name)["QueueUrl"]

    def send(place: int) -> None:
        batch = bodies[place : place + 10]
        answer = sqs.send_message_batch(
            QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": body} for n, body in enumerate(batch)]
        )
        if answer.get("Failed"):
            raise SystemExit("the queue did not take the messages")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(0, len(bodies), 10)))


def _body(services: Services, number: int) -> str:
    hour = START + timedelta(hours=number // OBJECTS_AN_HOUR)
    notice = s3_notification(
        bucket=services.datasets["usgs/streamflow"].input.bucket,
        object_key=f"usgs/streamflow/{hour:%Y/%m/%d/%H}/part-{number % OBJECTS_AN_HOUR}.parquet",
        etag=f"{number:032x}",
        size=1000 + number,
        version_id=f"v{number}",
        event_time=hour,
        sequencer=f"{number:018X}",
    )
    return json.dumps(notice)


def _fill_inbox(services: Services, rows: int) -> None:
    """So many events of earlier times, settled long ago."""
    services.database.execute(
        """
        INSERT INTO kfm.keys (key, dataset, window_start, window_end)
        SELECT 'usgs-streamflow:kansas_statewide:none:old-' || n || ':v1-0-0', 'usgs/streamflow',
               timestamptz '1900-01-01' + n * interval '1 hour', timestamptz '1900-01-01' + (n + 1) * interval '1 hour'
        FROM generate_series(0, %(rows)s / 20) n ON CONFLICT DO NOTHING
        """,
        {"rows": rows},
    )
    # Or every event below looks for its key by reading the whole table, as was best when it was small.
    services.database.execute("ANALYZE kfm.keys")
    services.database.execute(
        """
        INSERT INTO kfm.inbox (identity, key, dataset, shape, asset_uri, etag, size, event_time, priority, queue, body,
                               state)
        SELECT encode(sha256(n::text::bytea), 'hex'),
               'usgs-streamflow:kansas_statewide:none:old-' || n / 20 || ':v1-0-0',
               'usgs/streamflow', 's3-notification', 's3://old/' || n, md5(n::text), n,
               timestamptz '1900-01-01' + n * interval '1 minute', 'normal', 'kfm-ingest', repeat('x', 600),
               'succeeded'
        FROM generate_series(1, %(rows)s) n ON CONFLICT DO NOTHING
        """,
        {"rows": rows},
    )
    with services.database.transaction() as connection:
        connection.execute("ANALYZE kfm.inbox, kfm.keys")

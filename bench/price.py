"""What a key costs beyond its bare work: CPU of this process a key, against a pipeline without any guarantee.

The bare pipeline receives the same messages, gets the objects, sorts the rows, writes Parquet and a validated STAC
Item, and deletes the messages. Both publish to the same kind of store. Postgres and the emulator are other processes
and do not count. The two take turns, so that a machine that slows down slows down both.
"""

import hashlib
import io
import json
import resource
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.aws.clients import s3_client, sqs_client
from kfm_pipelines.cli.main import exempt_loaded_objects, quiet_libraries
from kfm_pipelines.definitions import CHORES, build_definitions
from kfm_pipelines.dispatch.worker import work
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services

KEYS = 200
ROUNDS = 3
START = datetime(2025, 1, 1, tzinfo=UTC)
BUCKET = "kfm-bench-store"


def price_of_guarantees_files(folder: Path) -> Measurement:
    return _price(folder, "price_of_guarantees_files", None)


def price_of_guarantees_s3(folder: Path) -> Measurement:
    return _price(folder, "price_of_guarantees_s3", f"s3://{BUCKET}/published")


def _price(folder: Path, name: str, store_url: str | None) -> Measurement:
    variables = {"KFM_BATCH_SIZE": str(KEYS)} | ({"KFM_STORE_URL": store_url} if store_url else {})
    ours, bare = [], []
    quiet_libraries()  # as the command does: Dagster would print every event
    with own_stack(folder, **variables) as services:
        if store_url:
            s3_client().create_bucket(Bucket=BUCKET)
        definitions = build_definitions(services.settings.resources)
        exempt_loaded_objects()
        put = _put_to_bucket if store_url else _put_to_folder(folder / "bare")
        for number in range(ROUNDS + 1):
            emit_hours(services, 2 * number)
            bare.append(cpu_seconds_of(lambda: _bare_pipeline(services, put)))
            emit_hours(services, 2 * number + 1)
            ours.append(cpu_seconds_of(lambda: run_our_pipeline(services, definitions)))
    # The first round loads what the others find.
    return Measurement(name, 1000 * median(ours[1:]) / KEYS, "ms CPU/key", 1000 * median(bare[1:]) / KEYS)


def emit_hours(services: Services, number: int) -> None:
    start = START + timedelta(hours=number * KEYS)
    emit_samples(
        services, SampleRequest("usgs/streamflow", start, KEYS), Topic(services.settings.topic), lambda _: None
    )


def cpu_seconds_of(run: Callable[[], None]) -> float:
    before = used_cpu_seconds()
    run()
    return used_cpu_seconds() - before


def used_cpu_seconds() -> float:
    """CPU of this process and of those it started that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run_our_pipeline(services: Services, definitions: Any) -> None:
    drain_all(services, budget_seconds=600)
    worked = work(services, definitions, CHORES, once=True)
    if worked.counts()["published"] != KEYS:
        raise SystemExit(f"{worked.counts()} instead of {KEYS} published keys")


def _bare_pipeline(services: Services, put: Callable[[str, bytes], None]) -> None:
    sqs, url = sqs_client(), sqs_client().get_queue_url(QueueName=services.queue.name)["QueueUrl"]
    done = 0
    while done < KEYS:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            for record in _records(message["Body"]):
                _publish_bare(record["s3"]["bucket"]["name"], record["s3"]["object"]["key"], put)
                done += 1
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
        if entries:
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]


def _records(body: str) -> list[Any]:
    document = json.loads(body)
    inner = json.loads(document["Message"]) if "Message" in document else document
    records: list[Any] = inner.get("Records", [])
    return records


def _publish_bare(bucket: str, object_key: str, put: Callable[[str, bytes], None]) -> None:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import pystac

    data = s3_client().get_object(Bucket=bucket, Key=object_key)["Body"].read()
    table = pq.read_table(io.BytesIO(data)).sort_by([("site_no", "ascending"), ("observed_at", "ascending")])
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    west, east = pc.min_max(table["longitude"]).as_py().values()
    south, north = pc.min_max(table["latitude"]).as_py().values()
    item = pystac.Item(
        id=object_key.replace("/", "-"),
        geometry={"type": "Polygon", "coordinates": [[[west, south], [east, south], [east, north], [west, south]]]},
        bbox=[west, south, east, north],
        datetime=pc.min(table["observed_at"]).as_py(),
        properties={"rows": table.num_rows},
    )
    digest = hashlib.sha256(sink.getvalue()).hexdigest()
    item.add_asset("data", pystac.Asset(f"../{digest}.parquet", media_type="application/vnd.apache.parquet"))
    item.validate()
    put(f"{digest}.parquet", sink.getvalue())
    put(f"items/{item.id}.json", json.dumps(item.to_dict(include_self_link=False)).encode())


def _put_to_bucket(path: str, data: bytes) -> None:
    s3_client().put_object(Bucket=BUCKET, Key=f"bare/{path}", Body=data)


def _put_to_folder(folder: Path) -> Callable[[str, bytes], None]:
    def put(path: str, data: bytes) -> None:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    return put

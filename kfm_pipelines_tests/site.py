"""A whole installation for one test: its own database, bucket, topic, queues, store and Dagster home, all real."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from psycopg import sql

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.events.messages import auto_update, s3_notification, sns_wrapped
from kfm_pipelines.local.samples import streamflow_object
from kfm_pipelines.messaging.clients import s3_client, sqs_client
from kfm_pipelines.messaging.provision import provision
from kfm_pipelines.operations.drain import drain_all
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.orchestration.worker import work
from kfm_pipelines.orchestration.workshop_resource import workshop_of_process
from kfm_pipelines.settings import load_settings, shipped, with_driver
from kfm_pipelines.state.database import migrate
from kfm_pipelines.state.recording import Tally
from kfm_pipelines.stores.layout import RED
from kfm_pipelines_tests.declared import resources_in

START = datetime(2025, 12, 4, tzinfo=UTC)


@dataclass(frozen=True)
class Put:
    """An object in the bucket, and what S3 says of it."""

    object_key: str
    etag: str
    version_id: str
    size: int
    window_start: datetime


@dataclass(frozen=True)
class Site:
    """One installation. `environment` points any other process at the same one."""

    workshop: Workshop
    environment: Mapping[str, str]
    root: Path

    @property
    def dataset(self) -> Dataset:
        return self.workshop.datasets["usgs/streamflow"]

    @property
    def bucket(self) -> str:
        return self.dataset.input.bucket

    @property
    def data(self) -> Path:
        return self.root / "data"

    def key(self, hour: int = 0) -> str:
        return f"usgs-streamflow:kansas_statewide:none:{START + timedelta(hours=hour):%Y-%m-%dT%HZ}:v1-0-0"

    def put(self, hour: int = 0, data: bytes | None = None, name: str | None = None) -> Put:
        """Upload the sample of an hour after START, or other bytes in its place. S3 itself sends the notice."""
        window_start = START + timedelta(hours=hour)
        object_key, sample = streamflow_object(window_start)
        if name:
            object_key = f"{object_key.rsplit('/', 1)[0]}/{name}"
        body = sample if data is None else data
        answer = s3_client().put_object(Bucket=self.bucket, Key=object_key, Body=body)
        return Put(object_key, answer["ETag"].strip('"'), answer["VersionId"], len(body), window_start)

    def s3_message(self, put: Put, **changes: Any) -> str:
        facts = {"etag": put.etag, "size": put.size, "version_id": put.version_id, "event_time": put.window_start}
        return json.dumps(s3_notification(bucket=self.bucket, object_key=put.object_key, **{**facts, **changes}))

    def wrapped(self, message: str) -> str:
        arn = f"arn:aws:sns:us-east-1:000000000000:{self.workshop.settings.topic}"
        return json.dumps(sns_wrapped(message, arn, str(uuid4()), START))

    def auto_update_message(self, put: Put, **changes: Any) -> str:
        facts: dict[str, Any] = {
            "dataset": "usgs/streamflow",
            "asset_uri": f"s3://{self.bucket}/{put.object_key}",
            "content_etag": f'"{put.etag}"',
            "granule_start": put.window_start,
            "granule_end": put.window_start + timedelta(minutes=59, seconds=59),
            "event_time": put.window_start,
        }
        return json.dumps(auto_update(**{**facts, **changes}))

    def send(self, body: str) -> None:
        self.workshop.queue.send(body)

    def send_all(self, bodies: Sequence[str]) -> None:
        """In this order, ten at a time."""
        for start in range(0, len(bodies), 10):
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies[start : start + 10])]
            answer = sqs_client().send_message_batch(QueueUrl=self.workshop.queue.url, Entries=entries)  # type: ignore[arg-type]
            assert not answer.get("Failed")

    def drain(self) -> Tally:
        drained = drain_all(self.workshop, budget_seconds=60)
        if drained.problems:
            raise ServiceUnavailable(drained.problems[0])
        return drained.tally

    def work(self) -> dict[str, int]:
        return work(self.workshop, once=True).counts()

    def fetch(self, statement: str) -> list[dict[str, Any]]:
        return self.workshop.database.fetch(statement)

    def tree(self, *folders: str) -> dict[str, str]:
        """Every file under these folders of the store with the digest of its bytes; by default all but the archive of
        messages and the dead letters, which tell how things came about, not what came of them. What a gate refused, and
        is kept to be looked at, is in `red`."""
        roots = [self.data / folder for folder in folders or ("catalog", "objects", "processed", "work")]
        files = [path for root in roots for path in root.rglob("*") if path.is_file() and not self._is_red(path)]
        return {str(p.relative_to(self.data)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(files)}

    def red(self, key: str) -> list[str]:
        """What is kept of what a gate refused of this key, as paths from the transaction on."""
        folder = self.data / RED / self.dataset_of(key).pipeline / key
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def dataset_of(self, key: str) -> Dataset:
        source = key.partition(":")[0]
        return next(one for one in self.workshop.datasets.values() if one.key.source == source)

    def _is_red(self, path: Path) -> bool:
        return path.is_relative_to(self.data / RED)


@contextmanager
def opened_site(root: Path, postgres_url: str, template: str, **settings: str) -> Iterator[Site]:
    """A new site below `root`; its variables are set in this process as long as it is open."""
    name = f"t{uuid4().hex[:12]}"
    root.mkdir(parents=True, exist_ok=True)
    database = create_database(postgres_url, name, template)
    environment = {
        "KFM_POSTGRES_URL": database,
        "KFM_DAGSTER_POSTGRES_URL": with_driver(database, "psycopg2"),
        "KFM_STORE_URL": (root / "data").as_uri(),
        "KFM_RESOURCES": str(_resources(root, name)),
        "KFM_HOME": str(root),
        "KFM_TOPIC": name,
        "KFM_QUEUE": name,
        "KFM_DEAD_LETTER_QUEUE": f"{name}-dlq",
        "KFM_NOTICE_TOPIC": f"{name}-notices",
        "KFM_ALERT_TOPIC": f"{name}-alerts",
        "KFM_PRIORITY_QUEUE": f"{name}-high",
        "KFM_FIFO_QUEUE": f"{name}.fifo",
        "KFM_FIFO_DEAD_LETTER_QUEUE": f"{name}-dlq.fifo",
        "KFM_LEASE_SECONDS": "2",
        # Whole trees are compared, also those of another site.
        "SOURCE_DATE_EPOCH": "1764806400",
        # A worker asked for `once` waits a little longer than a lease: the first few retries come sooner than that.
        "KFM_RETRY_BASE_SECONDS": "0.1",
        # Its library takes a second to load, which every process that a test starts would spend.
        "KFM_OPENLINEAGE_URL": "none",
        "KFM_CARE_KEY_HERITAGE_2026": "a secret of the tests, long enough to count",
        "KFM_SIGNING_KEY": str(signing_key(root)),
        "DAGSTER_HOME": str(dagster_home(root)),
        "DAGSTER_EVENT_BATCH_SIZE": "200",
        **settings,
    }
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environment.items():
            patch.setenv(variable, value)
        workshop = Workshop(load_settings())
        provision(workshop.settings, workshop.datasets)
        drain_all(workshop, budget_seconds=5)  # S3's test event
        workshop.database.execute("DELETE FROM kfm.queue_totals")
        workshop.database.execute("DELETE FROM kfm.energy")
        try:
            yield Site(workshop, {**os.environ}, root)
        finally:
            workshop.close()
            # The one that runs in this process have shared; a session of many sites would run out of connections.
            workshop_of_process(workshop.settings).close()
            workshop_of_process.cache_clear()
            drop_database(postgres_url, name)


def create_template(postgres_url: str, scratch: Path) -> str:
    """A database with our schema and Dagster's, to copy for every test: a copy takes a tenth of a second."""
    url = create_database(postgres_url, "site_template", "template1")
    migrate(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFM_DAGSTER_POSTGRES_URL", with_driver(url, "psycopg2"))
        patch.setenv("DAGSTER_HOME", str(dagster_home(scratch)))
        from dagster import DagsterInstance

        with DagsterInstance.get() as instance:
            instance.get_runs(limit=1)
            instance.get_dynamic_partitions("any")
    return "site_template"


def create_database(postgres_url: str, name: str, template: str) -> str:
    """By copying its files, which takes a third of the time of copying what is in them."""
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    return urlsplit(postgres_url)._replace(path=f"/{name}").geturl()


def drop_database(postgres_url: str, name: str) -> None:
    """As soon as nobody needs it: what is not on the disk yet need not get there."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def dagster_home(root: Path) -> Path:
    folder = root / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(shipped("dagster.yaml"), folder / "dagster.yaml")
    return folder


def signing_key(root: Path) -> Path:
    """The same for all sites, so that what they sign can be compared."""
    path = root / "signing.pem"
    key = Ed25519PrivateKey.from_private_bytes(b"the key that all test sites have")
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


def _resources(root: Path, bucket: str) -> Path:
    copy = resources_in(root)
    for declaration in (*(copy / "datasets").glob("*.yaml"), *(copy / "candidates").glob("*.yaml")):
        text = declaration.read_text()
        declaration.write_text(text.replace("bucket: kfm-ingest", f"bucket: {bucket}"))
    return copy

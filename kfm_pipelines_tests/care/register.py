"""A register of made-up heritage sites on a whole installation, and somebody who may decide about it."""

import io
import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kfm_pipelines.arrow_schemas import declared_schema
from kfm_pipelines.care.signatures import create_private_key, public_key_of
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.messaging.clients import s3_client
from kfm_pipelines.operations import reviewing
from kfm_pipelines.state import reviews
from kfm_pipelines_tests.declared import change
from kfm_pipelines_tests.site import Site

MONTH = datetime(2026, 5, 1, tzinfo=UTC)
KEY = "heritage-sites:kansas_statewide:5:2026-05:v1-0-0"
CENTRES = ((38.21, -97.83), (39.42, -96.31), (37.66, -99.12), (38.88, -100.47))


@dataclass(frozen=True)
class Register:
    """The heritage dataset of a site, with its reviewer."""

    site: Site

    @property
    def dataset(self) -> Dataset:
        return self.site.workshop.datasets["heritage/sites"]

    @property
    def private_key(self) -> Path:
        return self.site.root / "reviewer.pem"

    def put(self, table: pa.Table, number: int = 1) -> None:
        sink = io.BytesIO()
        pq.write_table(table, sink)
        name = f"heritage/sites/2026/05/register-{number:02d}.parquet"
        s3_client().put_object(Bucket=self.site.bucket, Key=name, Body=sink.getvalue())

    def waiting(self) -> reviews.Waiting:
        return reviews.waiting_review(self.site.workshop.database, KEY)

    def approve(self, reason: str = "as agreed") -> None:
        digest = self.waiting().release_digest
        reviewing.approve(self.site.workshop, KEY, digest, self.private_key, reason)

    def reject(self, reason: str = "too much is shown") -> None:
        reviewing.reject(self.site.workshop, KEY, self.waiting().release_digest, self.private_key, reason)

    def publish(self, table: pa.Table) -> None:
        self.put(table)
        self.site.work()
        self.approve()
        assert self.site.work()["published"] == 1

    def published(self) -> pa.Table:
        return pq.read_table(self.site.data / f"processed/heritage-sites/{KEY}.parquet")

    def reason(self) -> str:
        """Why the key is dead-lettered."""
        [row] = self.site.fetch("SELECT triage || ': ' || reason AS said FROM kfm.dead_letters WHERE state = 'open'")
        return str(row["said"])


def with_reviewer(site: Site, authority: str = "heritage-review-board") -> Register:
    """Give the authority a key, as an operator would."""
    register = Register(site)
    today = datetime.now(UTC).date()
    key = {
        "holder": "A reviewer of the tests",
        "public_key": public_key_of(create_private_key(register.private_key)),
        "valid_from": today - timedelta(days=1),
        "valid_until": today + timedelta(days=300),
    }
    change(site.root / "resources" / "authorities" / f"{authority}.yaml", keys=[key])
    return register


def sites(dataset: Dataset, count: int = 60, **columns: Any) -> pa.Table:
    """Made-up sites around four centres, of all three classes; a given column replaces the made-up one."""
    dice = random.Random(7)
    places = [CENTRES[number % 4] for number in range(count)]
    good: dict[str, list[Any]] = {
        "site_id": [f"14XX{number:05d}" for number in range(count)],
        "site_name": [f"Synthetic site {number:05d}" for number in range(count)],
        "sensitivity": [
            ("generalised", "generalised", "restricted", "withheld")[number // 4 % 4] for number in range(count)
        ],
        "latitude": [latitude + dice.uniform(-0.02, 0.02) for latitude, _ in places],
        "longitude": [longitude + dice.uniform(-0.02, 0.02) for _, longitude in places],
        "easting": [500_000.0 + number for number in range(count)],
        "northing": [4_200_000.0 + number for number in range(count)],
        "directions": [f"past the {number}th gate" for number in range(count)],
        "site_type": ["camp"] * count,
        "land_owner": ["somebody"] * count,
        "period": [("Archaic", "Woodland")[number % 2] for number in range(count)],
        "condition": ["good"] * count,
        "surveyed_on": [date(2026, 5, 1 + number % 28) for number in range(count)],
    }
    schema = declared_schema(dataset.table)
    return pa.table({name: pa.array(value, schema.field(name).type) for name, value in (good | columns).items()})

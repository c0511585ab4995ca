"""Datasets with windows of a week or a year are published, verified, linked from their page and registered."""

import io
import json
import posixpath
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.operations.replay.register import register_windows
from kfm_pipelines.operations.verify import load_trust_root, verify_key
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.runs.batches import walk_catalog, work_in_batches
from kfm_pipelines_tests.fixtures.sites.command import kfm_in_process
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

WEEK = r"usgs/streamflow/(?P<year>\d{4})-W(?P<week>\d{2})/[a-z0-9-]+\.parquet"
YEAR = r"usgs/streamflow/(?P<year>\d{4})/[a-z0-9-]+\.parquet"


def declare(site: Site, window: str, pattern: str) -> None:
    for path in (site.services.settings.resources / "datasets").glob("usgs-streamflow.yaml"):
        document = yaml.safe_load(path.read_text())
        document["key"]["window"] = window
        document["input"]["object_pattern"] = pattern
        path.write_text(yaml.safe_dump(document))
    (site.services.settings.resources / "candidates" / "usgs-streamflow@v1-1-0.yaml").unlink()
    site.services.__dict__.pop("datasets", None)


def put(site: Site, folder: str, *times: datetime) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.concat_tables([streamflow_table(time) for time in times]), sink)
    s3_client().put_object(Bucket=site.bucket, Key=f"usgs/streamflow/{folder}/state.parquet", Body=sink.getvalue())


def key_of(label: str) -> str:
    return f"usgs-streamflow:kansas_statewide:none:{label}:v1-0-0"


@pytest.mark.parametrize(
    ("window", "pattern", "contents", "pages"),
    [
        (
            "week",
            WEEK,
            {  # an ISO year begins up to three days before the calendar's
                "2025-W49": [datetime(2025, 12, 1, tzinfo=UTC), datetime(2025, 12, 7, 23, tzinfo=UTC)],
                "2026-W01": [datetime(2025, 12, 29, tzinfo=UTC), datetime(2026, 1, 4, 23, tzinfo=UTC)],
                "2026-W02": [datetime(2026, 1, 5, tzinfo=UTC)],
            },
            {"2025": ["2025-W49"], "2026": ["2026-W01", "2026-W02"]},
        ),
        (
            "year",
            YEAR,
            {
                "2024": [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 12, 31, 23, tzinfo=UTC)],
                "2025": [datetime(2025, 7, 1, tzinfo=UTC)],
            },
            {"2024": ["2024"], "2025": ["2025"]},
        ),
    ],
    ids=["week", "year"],
)
def test_long_windows_are_published_verified_and_on_their_page(
    site: Site, window: str, pattern: str, contents: dict[str, list[datetime]], pages: dict[str, list[str]]
) -> None:
    declare(site, window, pattern)
    for label, times in contents.items():
        put(site, label, *times)

    assert work_in_batches(site) == {"keys": len(contents), "published": len(contents), "skipped": 0, "failed": 0}

    trust = load_trust_root(site.services.store, site.services.settings.signing_key, None)
    for label, times in contents.items():
        assert verify_key(site.services.store, trust, key_of(label)).failed == ()
        item = json.loads((site.data / f"catalog/usgs-streamflow/items/{key_of(label)}.json").read_text())
        assert item["properties"]["title"].endswith(f", {label}")
        assert datetime.fromisoformat(item["properties"]["start_datetime"]) <= times[0]
        assert datetime.fromisoformat(item["properties"]["end_datetime"]) >= times[-1]
    found = dict(walk_catalog(site.services.store))
    for page, labels in pages.items():
        linked = [one["href"] for one in _page(found, page)["links"] if one["rel"] == "item"]
        assert [posixpath.basename(href) for href in linked] == [f"{key_of(label)}.json" for label in labels]
        dcat = json.loads((site.data / Layout("usgs-streamflow").page_dcat(page)).read_text())
        assert len(dcat["dcat:distribution"]) == len(labels)
    assert kfm_in_process(site.environment, "verify", "--all", "--json").json["ok"]


def _page(found: dict[str, dict[str, object]], page: str) -> dict[str, list[dict[str, str]]]:
    [document] = [one for path, one in found.items() if posixpath.dirname(path).endswith(f"/by-time/{page}")]
    return document  # type: ignore[return-value]


def test_weeks_are_registered_one_after_the_other(site: Site) -> None:
    declare(site, "week", WEEK)
    start = datetime(2025, 12, 20, tzinfo=UTC)
    weeks = register_windows(site.services, site.dataset, start, start + timedelta(days=20), "ana")
    assert list(weeks.keys) == [key_of(label) for label in ("2025-W52", "2026-W01", "2026-W02")]
    bounds = site.fetch("SELECT window_start, window_end FROM kfm.keys ORDER BY window_start")
    assert all(row["window_end"] - row["window_start"] == timedelta(days=7) for row in bounds)
    assert all(after["window_start"] == row["window_end"] for row, after in pairwise(bounds))


def test_years_are_registered_leap_years_too(site: Site) -> None:
    declare(site, "year", YEAR)
    put(site, "2024", datetime(2024, 7, 1, tzinfo=UTC))
    start, end = datetime(2023, 1, 1, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC)
    years = register_windows(site.services, site.dataset, start, end, "ana")
    assert list(years.keys) == [key_of(label) for label in ("2023", "2024", "2025")]
    assert (years.objects, years.events) == (1, 1)
    days = site.fetch("SELECT (window_end - window_start) AS length FROM kfm.keys ORDER BY key")
    assert [row["length"].days for row in days] == [365, 366, 365]

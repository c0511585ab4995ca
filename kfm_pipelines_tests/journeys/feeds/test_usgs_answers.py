"""Answers of the water services of the USGS become hours of streamflow, as a plain reading of their JSON has them."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.provision import provision
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.producer.samples.usgs_answer import usgs_answer
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site
from kfm_pipelines_tests.journeys.feeds.test_scenes import verify_everything

pytestmark = pytest.mark.slow
REAL_HOUR = datetime(2019, 2, 14, 5, tzinfo=UTC)
COLUMNS = {"00060": "discharge_cfs", "00065": "gage_height_ft"}
NO_VALUE = -999999.0

Readings = dict[tuple[str, datetime], dict[str, Any]]


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """It has a dataset of gauges anywhere in the country besides, because those of the real answer are in Maryland."""
    root = tmp_path_factory.mktemp("answers") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        folder = opened.services.settings.resources / "datasets"
        document = yaml.safe_load((folder / "usgs-streamflow.yaml").read_text())
        source = document["input"]
        source["prefix"] = "usgs/elsewhere/"
        source["object_pattern"] = source["object_pattern"].replace("usgs/streamflow/", "usgs/elsewhere/")
        document["key"] |= {"source": "usgs-elsewhere", "aoi": "united_states"}
        (folder / "usgs-elsewhere.yaml").write_text(yaml.safe_dump(document | {"dataset": "usgs/elsewhere"}))
        services = Services(load_settings())
        provision(services.settings, services.datasets)
        yield replace(opened, services=services)
        services.close()


def plain_reading(answer: bytes, hour: datetime) -> Readings:
    """What an answer says of an hour, taken from its JSON without our reader."""
    found: Readings = {}
    for series in json.loads(answer)["value"]["timeSeries"]:
        column = COLUMNS.get(series["variable"]["variableCode"][0]["value"])
        if column is None:
            continue
        for one in series["values"][0]["value"]:
            at = datetime.fromisoformat(one["dateTime"]).astimezone(UTC)
            if hour <= at < hour + timedelta(hours=1):
                row = found.setdefault((series["sourceInfo"]["siteCode"][0]["value"], at), {})
                row[column] = None if float(one["value"]) == NO_VALUE else float(one["value"])
    return found


def published(site: Site, pipeline: str, key: str) -> Readings:
    rows = pq.read_table(site.data / "processed" / pipeline / f"{key}.parquet").to_pylist()
    return {
        (row["site_no"], row["observed_at"]): {name: row[name] for name in COLUMNS.values() if row[name] is not None}
        for row in rows
    }


def without_nulls(readings: Readings) -> Readings:
    return {key: {name: value for name, value in row.items() if value is not None} for key, row in readings.items()}


def provisional(hour: datetime) -> bytes:
    table, sink = streamflow_table(hour), io.BytesIO()
    place = table.schema.get_field_index("qualifier")
    pq.write_table(table.set_column(place, "qualifier", pa.array(["P"] * table.num_rows)), sink)
    return sink.getvalue()


def findings(site: Site, key: str) -> list[str]:
    rows = site.fetch(f"SELECT DISTINCT rule, measured FROM kfm.qa_findings WHERE key = '{key}' AND severity = 'info'")
    return [f"{row['rule']}: {row['measured']}" for row in rows]


def test_an_approved_answer_replaces_provisional_readings_in_any_order(site: Site) -> None:
    hours = [START, START + timedelta(hours=1)]
    answers = [usgs_answer(hour, seed=1, approved=True)[1] for hour in hours]
    site.put(0, provisional(hours[0]))
    site.put(1, answers[1], "answer.json")
    assert site.work()["published"] == 2
    assert published(site, "usgs-streamflow", site.key(0)) != without_nulls(plain_reading(answers[0], hours[0]))

    site.put(0, answers[0], "answer.json")
    site.put(1, provisional(hours[1]))
    assert site.work()["failed"] == 0

    for place, hour in enumerate(hours):
        key, expected = site.key(place), without_nulls(plain_reading(answers[place], hour))
        assert len(expected) == 68
        assert published(site, "usgs-streamflow", key) == expected
        assert "time-in-window: 17 outside, left out" in findings(site, key)
    assert hours[1] in {at for _, at in published(site, "usgs-streamflow", site.key(1))}  # the end of the first answer
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    verify_everything(site)


@needs_data
def test_the_real_answer_is_published_as_a_plain_reading_has_it(site: Site) -> None:
    answer = (DATA / "usgs_nwis_iv.json").read_bytes()
    s3_client().put_object(Bucket=site.bucket, Key=f"usgs/elsewhere/{REAL_HOUR:%Y/%m/%d/%H}/answer.json", Body=answer)
    assert site.work() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}

    key = f"usgs-elsewhere:united_states:none:{REAL_HOUR:%Y-%m-%dT%H}Z:v1-0-0"
    found = published(site, "usgs-elsewhere", key)
    assert found == without_nulls(plain_reading(answer, REAL_HOUR))
    assert len(found) == 9
    assert findings(site, key) == ["time-in-window: 1 outside, left out"]
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    verify_everything(site)

"""A new dataset on a running site: wired, uploaded to, taken in, and never lost."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.declarations.dataset import Dataset, load_dataset
from kfm_pipelines.definitions import CHORES
from kfm_pipelines.dispatch.sensor import tick
from kfm_pipelines.errors import Unreachable
from kfm_pipelines.inbox import unseen
from kfm_pipelines.inbox.unseen import InputState, look_at_input, warn_of_unseen
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines_tests.fixtures.sites.command import kfm_in_process
from kfm_pipelines_tests.fixtures.sites.site import Site, work_once
from kfm_pipelines_tests.fixtures.tables import rows

NAME = "usgs/second"
LATER = timedelta(hours=1)


@pytest.fixture
def declaration(site: Site) -> Path:
    """Declares a second dataset, of the same objects under another prefix. Nothing is wired."""
    resources = site.services.settings.resources
    document = yaml.safe_load((resources / "datasets/usgs-streamflow.yaml").read_text())
    document |= {"dataset": NAME, "title": "Second"}
    document["key"]["source"] = "usgs-second"
    document["input"] |= {
        "prefix": "usgs/second/",
        "object_pattern": document["input"]["object_pattern"].replace("usgs/streamflow", "usgs/second"),
    }
    path = resources / "datasets/usgs-second.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def services(site: Site, declaration: Path) -> Any:
    """Services of code that has loaded the second dataset."""
    opened = Services(load_settings())
    yield opened
    opened.close()


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    path = tmp_path / "readings.parquet"
    pq.write_table(rows(3), path)
    return path


def run(site: Site, *arguments: str) -> Any:
    return kfm_in_process(site.environment, "datasets", *arguments).json


def put(site: Site, path: Path, name: str = "a") -> None:
    key = f"usgs/second/2025/12/04/00/{name}.parquet"
    s3_client().put_object(Bucket=site.bucket, Key=key, Body=path.read_bytes())


def missing(document: Any) -> list[str]:
    return [step["next"].partition(" /")[0] for step in document["missing"]]


def test_check_names_what_is_missing_and_add_wires_it(site: Site, declaration: Path, readings: Path) -> None:
    before = run(site, "check", str(declaration), "--json")
    assert before["ok"]
    assert missing(before) == [
        "kfm datasets add",
        "start `kfm up`, or run `kfm work --once`",
        f"kfm datasets upload FILE s3://{site.bucket}/usgs/second/2025/12/04/03/a.parquet",
    ]
    added = run(site, "add", str(declaration), "--json")
    assert missing(added) == missing(before)[1:]
    assert not look_at_input(site.services, load_dataset(declaration)).unannounced

    uploaded = run(site, "upload", str(readings), f"s3://{site.bucket}/usgs/second/2025/12/04/00/a.parquet", "--json")
    assert uploaded["key"] == "usgs-second:kansas_statewide:none:2025-12-04T00Z:v1-0-0"
    after = [step["missing"] for step in run(site, "check", str(declaration), "--json")["missing"]]
    assert after == ["no sensor is running (it has never run)"]
    with_second = Services(load_settings())
    assert work_once(with_second).counts()["published"] == 1
    with_second.close()


def test_what_no_dataset_would_take_is_not_uploaded(site: Site, readings: Path) -> None:
    result = kfm_in_process(
        site.environment, "datasets", "upload", str(readings), f"s3://{site.bucket}/usgs/streamflow/wrong.parquet"
    )
    assert result.code == 1
    assert "does not match usgs/streamflow's input.object_pattern; nothing was uploaded" in result.err


def test_objects_that_were_there_before_are_seen_and_taken_in_by_the_command_given(
    site: Site, declaration: Path, services: Services, readings: Path
) -> None:
    for name in ("a", "b"):
        put(site, readings, name)
    s3_client().put_object(Bucket=site.bucket, Key="usgs/second/other.txt", Body=b"x")
    dataset, later = services.datasets[NAME], datetime.now(UTC) + LATER
    state = look_at_input(services, dataset, later)
    assert (state.matching, state.unmatched, state.unseen) == (2, 1, 2)
    take_in = f"kfm replay plan --dataset {NAME} --from 2025-12-04 --to 2025-12-05 --register --include-open"
    assert state.problems == [
        f"{NAME}: bucket {site.bucket} does not announce usgs/second/; kfm doctor --fix wires it",
        f"{NAME}: 2 objects lie under s3://{site.bucket}/usgs/second/ unseen; {take_in}",
    ]
    assert look_at_input(services, dataset).unseen == 0, "a notice may still be on the way"

    assert kfm_in_process(site.environment, *take_in.split()[1:], "--json").json["registered"]
    assert look_at_input(services, dataset, later).problems == []
    assert work_once(services).counts() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "GRACE", -LATER)


def test_status_and_the_tick_warn(
    site: Site, declaration: Path, services: Services, readings: Path, at_once: None
) -> None:
    put(site, readings)
    reasons = []
    with open_instance() as instance:
        for _ in services.datasets:  # one dataset a tick
            reasons.append(str(tick(instance, services, CHORES).skip_reason))
    expected = f"{NAME}: bucket {site.bucket} does not announce usgs/second/"
    assert expected in reasons[-1]
    assert "1 object lies under" in reasons[-1]

    document = kfm_in_process(site.environment, "status", "--json").json  # which wires what is missing on an emulator
    assert document["inputs"][NAME]["unseen"] == 1
    assert document["inputs"]["usgs/streamflow"]["warnings"] == []
    displayed = kfm_in_process(site.environment, "status").out
    assert f"WARNING    {NAME}: 1 object lies under s3://{site.bucket}/usgs/second/ unseen" in displayed


def test_a_tick_asks_for_one_dataset_and_not_again_for_minutes(
    site: Site, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look(services: Services, dataset: Dataset) -> InputState:
        asked.append(dataset.dataset)
        return look_at_input(services, dataset)

    monkeypatch.setattr(unseen, "look_at_input", look)
    for _ in range(2 * len(services.datasets)):
        warn_of_unseen(services)
    assert sorted(asked) == sorted(services.datasets)


def test_a_tick_does_not_fail_when_nobody_answers(
    site: Site, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Unreachable("S3 does not answer")

    monkeypatch.setattr(unseen, "look_at_input", refuse)
    assert warn_of_unseen(services) == []


def test_check_and_upload_know_whether_the_running_code_has_loaded_the_declaration(
    site: Site, declaration: Path, services: Services, readings: Path
) -> None:
    reload = "reload the code location in Dagster (Deployment), or restart `kfm up`"
    with open_instance() as instance:
        tick(instance, site.services, CHORES)  # code from before the second dataset was declared
    steps = {one["missing"]: one["next"] for one in run(site, "check", str(declaration), "--json")["missing"]}
    assert steps["the running code has not loaded it"] == reload
    place = f"s3://{site.bucket}/usgs/second/2025/12/04/00/a.parquet"
    refused = kfm_in_process(site.environment, "datasets", "upload", str(readings), place)
    assert refused.code == 1
    assert f"{reload}. Its notice would become a dead letter; nothing was uploaded" in refused.err

    with open_instance() as instance:
        tick(instance, services, CHORES)
    assert reload not in missing(run(site, "check", str(declaration), "--json"))

    declaration.write_text(declaration.read_text().replace("title: Second", "title: Third"))
    steps = {one["missing"]: one["next"] for one in run(site, "check", str(declaration), "--json")["missing"]}
    assert steps["the running code has an older version of it"] == reload


def test_a_declaration_is_written_from_an_object_in_s3(site: Site, readings: Path) -> None:
    key = "usgs/third/2025/12/04/00/readings.parquet"
    s3_client().put_object(Bucket=site.bucket, Key=key, Body=readings.read_bytes())
    written = run(site, "new", "usgs/third", "--from", f"s3://{site.bucket}/{key}", "--json")
    assert written["ok"]
    dataset = load_dataset(Path(written["declaration"]))
    assert (dataset.input.bucket, dataset.input.prefix, dataset.key.window) == (site.bucket, "usgs/third/", "hour")
    assert re.fullmatch(dataset.input.object_pattern, key)
    none = kfm_in_process(site.environment, "datasets", "new", "a/b", "--from", f"s3://{site.bucket}/not/there.csv")
    assert (none.code, none.out, none.err.count("\n")) == (1, "", 1)
    assert "not/there.csv" in none.err

"""A promotion can be repeated from wherever it was stopped, and promotes exactly what was compared."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm_pipelines.errors import DeclarationInvalid, PromotionRefused, ServiceUnavailable
from kfm_pipelines.operations.canary import promote as promotion
from kfm_pipelines.operations.canary.candidate import load_canary_candidate
from kfm_pipelines.operations.canary.evaluate import CanaryRun
from kfm_pipelines.operations.canary.promote import promote, read_candidate_status
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.stages.validate.table_gates import suite_of
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.runs.batches import publish
from kfm_pipelines_tests.fixtures.runs.candidates import (
    CANARY,
    VERSION,
    candidate_file,
    declaration_path,
    declared_now,
    try_candidate,
)
from kfm_pipelines_tests.fixtures.runs.replay import published_hours
from kfm_pipelines_tests.fixtures.sites.site import START, Site

STREAMFLOW = "usgs/streamflow"
COUNTED = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 100_000}, "meta": {"rule": "rows"}}


def ready(site: Site) -> None:
    """One key was compared, and one is enough."""
    published_hours(site, 1)
    CanaryRun(site.services, try_candidate(site, {**CANARY, "keys": 1}), "a run").compare([site.key()])


class Interrupted(BaseException):
    pass


def stop(*_: object) -> None:
    raise Interrupted


@pytest.mark.slow
def test_an_interrupted_promotion_is_finished_by_doing_it_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was stopped before the swap or after it. The file that declares the dataset may have any name."""
    ready(site)
    other = declaration_path(site).rename(declaration_path(site).with_name("flows.yaml"))
    text, files = candidate_file(site).read_text(), sorted(other.parent.iterdir())

    with monkeypatch.context() as patch:
        patch.setattr(type(other), "replace", stop)
        with pytest.raises(Interrupted):
            promote(site.services, STREAMFLOW, actor="ana", reason="yes")
    assert declared_now(site).key.transform_version == "v1-0-0"
    assert list(other.parent.glob(".*")) == []

    with monkeypatch.context() as patch:
        patch.setattr(promotion, "clear_shadows", stop)
        with pytest.raises(Interrupted):
            promote(site.services, STREAMFLOW, actor="ana", reason="yes")
    candidate_file(site).write_text(text)  # as if it had been stopped one step earlier
    assert declared_now(site).key.transform_version == VERSION

    finished = promote(site.services, STREAMFLOW, actor="ana", reason="yes")
    assert (finished.from_version, finished.to_version) == (None, VERSION)
    assert sorted(other.parent.iterdir()) == files
    assert other.read_text() == text
    assert not candidate_file(site).exists()
    assert site.tree("work") == {}
    assert {one["to_version"] for one in site.fetch("SELECT * FROM kfm.promotions")} == {VERSION}


def unavailable(*_: object) -> None:
    raise ServiceUnavailable("the database does not answer")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["record_promotion", "approve_if_changed"])
def test_a_promotion_during_an_outage_can_be_made_afterwards(
    site: Site, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    ready(site)
    with monkeypatch.context() as patch:
        patch.setattr(promotion, step, unavailable)
        with pytest.raises(ServiceUnavailable):
            promote(site.services, STREAMFLOW, actor="ana", reason="yes")
    assert declared_now(site).key.transform_version == "v1-0-0"

    assert promote(site.services, STREAMFLOW, actor="ana", reason="yes").to_version == VERSION
    assert declared_now(site).key.transform_version == VERSION
    site.put(1)
    site.drain()
    new = site.key(1).replace("v1-0-0", VERSION)
    publish(site.services, site.dataset, [new], "after")
    assert site.fetch(f"SELECT revision FROM kfm.revisions WHERE key = '{new}'") == [{"revision": 1}]


@pytest.mark.slow
def test_promotion_is_refused_without_write_access_or_comparisons(site: Site) -> None:
    ready(site)
    in_the_way = declaration_path(site).parent / ".usgs-streamflow.yaml.promoted"
    in_the_way.mkdir()  # a folder that is read-only is no hindrance for root
    with pytest.raises(PromotionRefused) as refusal:
        promote(site.services, STREAMFLOW, actor="ana", reason="it is right")
    assert str(refusal.value) == (
        "the reviewed files cannot be written here (Is a directory): where they are reviewed, move "
        "candidates/usgs-streamflow@v1-1-0.yaml to datasets/usgs-streamflow.yaml"
    )
    in_the_way.rmdir()

    changes: dict[Path, dict[str, Any]] = {
        candidate_file(site): {"quality": {"ranges": [{"column": "latitude", "min": 0.0}]}},
        declaration_path(site): {"canary": {**CANARY, "keys": 1, "tolerance": {"columns": "any"}}},
    }
    for path, changed in changes.items():
        before = path.read_text()
        change(path, **changed)
        with pytest.raises(PromotionRefused, match="0 keys were compared with this candidate; 1 are needed"):
            promote(site.services, STREAMFLOW, actor="ana", reason="it was right before")
        path.write_text(before)

    assert site.fetch("SELECT * FROM kfm.promotions") == []
    assert candidate_file(site).exists()


@pytest.mark.slow
def test_promotion_is_refused_while_keys_of_the_current_version_are_unsettled(site: Site) -> None:
    ready(site)
    keys = site.services.database.execute
    keys(
        """
        INSERT INTO kfm.keys (key, dataset, window_start, window_end, due_at, owner, lease_until, awaiting)
        SELECT 'usgs-streamflow:kansas_statewide:none:w' || n || ':v1-0-0', 'usgs/streamflow',
               clock_timestamp(), clock_timestamp() + interval '1 hour', CASE n WHEN 1 THEN clock_timestamp() END,
               CASE n WHEN 2 THEN 'a run' END, CASE n WHEN 2 THEN clock_timestamp() END,
               CASE n WHEN 3 THEN repeat('a', 64) END
        FROM generate_series(1, 3) AS n
        """
    )
    for ended in range(3):
        for dry_run in (True, False):
            with pytest.raises(PromotionRefused) as refusal:
                promote(site.services, STREAMFLOW, actor="ana", reason="now", dry_run=dry_run)
            assert str(refusal.value) == (
                f"usgs/streamflow@v1-1-0: {3 - ended} keys of v1-0-0 are due, in a run or waiting for a review; "
                "promote when each of them is published or dead-lettered"
            )
        keys(f"DELETE FROM kfm.keys WHERE key LIKE '%:w{ended + 1}:%'")
    assert site.fetch("SELECT * FROM kfm.promotions") == []
    assert promote(site.services, STREAMFLOW, actor="ana", reason="now").to_version == VERSION


def test_a_changed_suite_makes_another_candidate(site: Site) -> None:
    resources = site.services.settings.resources
    change(candidate_file(site), quality={"suite": "usgs-streamflow"})
    dataset = try_candidate(site)
    before = load_canary_candidate(site.services, dataset)
    assert before == load_canary_candidate(site.services, dataset)
    assert suite_of(site.services, "usgs-streamflow", before.declaration.table).expectations

    suite = resources / "expectations/usgs-streamflow.json"
    suite.write_text(json.dumps({**json.loads(suite.read_text()), "expectations": [COUNTED]}))
    assert load_canary_candidate(site.services, dataset).digest != before.digest
    [expected] = suite_of(site.services, "usgs-streamflow", before.declaration.table).expectations
    assert expected.type == COUNTED["type"]

    suite.unlink()
    with pytest.raises(DeclarationInvalid, match=r"^usgs-streamflow\.json: cannot be read: No such file or directory$"):
        load_canary_candidate(site.services, dataset)


@pytest.mark.slow
def test_keys_without_rows_do_not_count(site: Site) -> None:
    empty = io.BytesIO()
    pq.write_table(streamflow_table(START).slice(0, 0), empty)
    site.put(data=empty.getvalue())
    site.drain()
    publish(site.services, site.dataset, [site.key()], "empty")
    dataset = try_candidate(site, {**CANARY, "keys": 1})
    [one] = CanaryRun(site.services, dataset, "a run").compare([site.key()])
    assert (one.good, one.report["empty"]) == (True, True)
    with pytest.raises(PromotionRefused) as refusal:
        promote(site.services, STREAMFLOW, actor="ana", reason="nothing is wrong")
    assert str(refusal.value) == (
        "usgs/streamflow@v1-1-0: 0 keys were compared with this candidate; 1 are needed, and 1 without rows do not "
        "count"
    )


def test_differences_are_reported_only_where_nothing_is_reviewed(site: Site) -> None:
    assert read_candidate_status(site.services, try_candidate(site)).reports_differences
    change(candidate_file(site), review="required")
    assert not read_candidate_status(site.services, declared_now(site)).reports_differences
    change(declaration_path(site), review="required")
    assert not read_candidate_status(site.services, declared_now(site)).reports_differences

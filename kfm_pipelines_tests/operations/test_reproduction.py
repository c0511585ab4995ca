"""What is published can be made again, byte for byte, or it is said what has changed and nothing is published."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from kfm_pipelines.operations.purposes import Purpose
from kfm_pipelines.operations.reproduction import REPRODUCED
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.wal import Outcome
from kfm_pipelines_tests.orchestration.given import declared_anew
from kfm_pipelines_tests.publications import Told, applied, hear, publish
from kfm_pipelines_tests.replays import close_until, last_of, plan_replay, whole_tree
from kfm_pipelines_tests.site import START, Site

DAYS = 31


def with_days(site: Site) -> Site:
    """The same site, where a key is a day."""
    return declared_anew(site, "usgs-streamflow", lambda document: document["key"].update(window="day"))


def a_day(site: Site, day: int) -> str:
    """An object of the day, heard of; its key."""
    key = f"usgs-streamflow:kansas_statewide:none:{START + timedelta(days=day):%Y-%m-%d}:v1-0-0"
    hear(site.workshop, Told(key, site.s3_message(site.put(24 * day))))
    return key


def reproduce(workshop: Workshop, keys: Sequence[str], run_id: str = "again") -> str:
    """One run of a replay over these keys; the replay's id."""
    dataset = workshop.datasets["usgs/streamflow"]
    replay = plan_replay(workshop, dataset.dataset, keys)
    publish(workshop, dataset, keys, run_id, Purpose(replay=replay))
    return replay


@pytest.mark.slow
def test_a_month_comes_back_byte_for_byte_in_an_empty_store(site: Site, tmp_path: Path) -> None:
    site = with_days(site)
    # Without a fixed time of day: what is told of a revision is when it was first published.
    workshop = Workshop(replace(site.workshop.settings, source_date_epoch=None))
    site = replace(site, workshop=workshop)
    keys = [a_day(site, day) for day in range(DAYS)]
    publish(workshop, site.dataset, keys, "first")
    close_until(workshop, site.dataset.dataset, START + timedelta(days=DAYS))
    before = whole_tree(site.data)
    assert len([path for path in before if path.startswith("processed/")]) == DAYS
    assert len([path for path in before if path.startswith("ingest/events/")]) == DAYS

    site.data.rename(tmp_path / "lost")
    workshop.announced.clear()  # as in another process
    replay = reproduce(workshop, keys)
    after = whole_tree(site.data)
    assert sorted(after) == sorted(before)
    assert [path for path in after if after[path] != before[path]] == []
    assert applied(workshop) == dict.fromkeys(keys, 2)
    assert {row["revision"] for row in site.fetch("SELECT revision FROM kfm.revisions")} == {1}

    # Now that it is there, making it again changes nothing.
    reproduce(workshop, keys, "and again")
    assert {(last_of(workshop, key).outcome, last_of(workshop, key).detail["reason"]) for key in keys} == {
        (Outcome.SKIPPED, REPRODUCED)
    }
    assert whole_tree(site.data) == after
    assert not list((site.data / "work").rglob("*.parquet"))
    begun = site.fetch(f"SELECT count(*) AS n FROM kfm.wal WHERE step = 'begin' AND detail->>'replay' = '{replay}'")
    assert begun == [{"n": 2 * DAYS}]
    spent = site.fetch("SELECT min(cpu_seconds) AS least FROM kfm.replay_keys")
    assert spent[0]["least"] > 0
    workshop.close()

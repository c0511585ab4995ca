"""A plan says which keys, why, and for which configuration; and the bucket's history becomes keys."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from kfm_pipelines.catalog.trust import environment
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.kill_switch.switch import kill
from kfm_pipelines.operations.replay import plan as configuration
from kfm_pipelines.operations.replay.choose import KeyFilter
from kfm_pipelines.operations.replay.plan import ReplayRequest, make_plan, snapshot_config
from kfm_pipelines.operations.replay.register import register_windows
from kfm_pipelines.state.config_snapshots import digest_of
from kfm_pipelines_tests.fixtures.care.register import MONTH, sites, with_reviewer
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.runs.replay import (
    carried_out,
    close_windows,
    declare,
    outcomes,
    planned,
    published_hours,
    read_again,
)
from kfm_pipelines_tests.fixtures.sites.site import START, Site

END_OF_TIME = (datetime(9999, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC))


def test_every_key_is_in_or_out_for_a_reason(site: Site) -> None:
    for hour in range(3):
        site.put(hour)
    site.put(3, spoiled(3))
    assert site.work() == {"keys": 4, "published": 3, "skipped": 0, "failed": 1}
    site.put(5)
    site.drain()  # known, not run
    site.services.database.execute("DELETE FROM kfm.checkpoints")
    with pytest.raises(ReplayRefused, match="no window of the dataset is closed yet"):
        planned(site, 6)
    close_windows(site, START + timedelta(hours=2))

    plan = planned(site, 6)

    assert {one.key: one.why for one in plan.chosen} == dict.fromkeys(
        [site.key(0), site.key(1)], "published, revision 1"
    )
    assert {one.key: one.why for one in plan.left_out} == dict.fromkeys(
        [site.key(hour) for hour in (2, 3, 5)], "its window is not closed: the watermark is 2025-12-04T02:00:00Z"
    )
    close_windows(site)
    plan = planned(site, 6)
    assert [one.key for one in plan.chosen] == [site.key(hour) for hour in range(3)]
    assert [one.why.partition(":")[0] for one in plan.left_out] == [
        "dead-lettered; never published",
        "registered, not run",
    ]
    made_anew = planned(site, 6, "upgrade")
    assert {one.key: one.why for one in made_anew.chosen} == {
        site.key(3): "dead-lettered; never published",
        site.key(5): "registered, not run",
    }
    assert plan.estimate.measured_keys == 3
    assert plan.estimate.cpu_seconds is not None
    assert plan.estimate.energy_ws is not None
    assert plan.estimate.wall_seconds is not None
    _conditions_choose(site)

    kill(site.services, "usgs/streamflow", "ana", "a leak")
    with pytest.raises(ReplayRefused, match="is killed by ana: a leak"):
        planned(site, 6)


def _conditions_choose(site: Site) -> None:
    def chosen(*where: str) -> list[str]:
        plan = planned(site, 6, "upgrade", *where)
        return [one.key for one in plan.keys]

    every = [site.key(hour) for hour in (0, 1, 2, 3, 5)]
    assert chosen() == every
    assert chosen("state=failed") == [site.key(3)]
    assert chosen("state=unpublished") == [site.key(3), site.key(5)]
    assert chosen("version=v1-0-0", "late=no") == every
    assert [one.key for one in planned(site, 6, "reproduce", "state=published").keys] == every[:3]
    with pytest.raises(ReplayRefused, match=r"none of the 5 keys .* is one that --where asks for"):
        chosen("version=v9")
    for wrong in ("colour=red", "state", "state=lost", "late=maybe"):
        with pytest.raises(ReplayRefused):
            KeyFilter.parse([wrong])


def test_partition_and_lateness_can_be_asked_for(site: Site) -> None:
    pattern = site.dataset.input.object_pattern.replace("[A-Za-z0-9_.-]+", "(?P<gauge>[a-z]+)")
    declare(site, watermark={"partition": "gauge"}, input={"object_pattern": pattern})
    site.put(0, name="one.parquet")
    site.put(1, name="two.parquet")
    site.drain()
    site.services.database.execute(
        """
        INSERT INTO kfm.late (identity, key, dataset, rule, state)
        SELECT identity, key, dataset, 'patch', 'applied' FROM kfm.inbox WHERE partition = 'two'
        """
    )
    close_windows(site)
    assert [one.key for one in planned(site, 3, "upgrade", "partition=one").chosen] == [site.key(0)]
    assert [one.key for one in planned(site, 3, "upgrade", "late=yes").chosen] == [site.key(1)]
    assert [one.key for one in planned(site, 3, "upgrade", "late=no").chosen] == [site.key(0)]


def test_the_configuration_is_that_of_the_plan(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    published_hours(site, 1)

    def digest() -> str:
        read_again(site)
        return digest_of(snapshot_config(site.services, site.dataset, "reproduce", ()))

    first = planned(site, 1)
    again = planned(site, 1)
    assert (first.config_digest, first.config) == (again.config_digest, again.config)
    assert first.config["declarations"] == [first.config["declaration"]]
    seen = {digest()}
    declare(site, title="Another title")
    seen.add(digest())
    resources = site.services.settings.resources
    change(resources / "policies/not-sensitive.yaml", version=3)
    seen.add(digest())
    other = replace(environment.environment_facts(), python="3.99.0")
    monkeypatch.setattr(configuration, "environment_facts", lambda: other)
    seen.add(digest())
    assert len(seen) == 4
    with pytest.raises(ReplayRefused, match="reproduced: the declaration's title has changed; the policy was"):
        planned(site, 1)


def test_the_bucket_becomes_keys_and_a_notification_is_no_second_event(site: Site) -> None:
    """Hour 0 is told by its notification before it is registered, hour 1 after."""
    site.put(0)
    site.drain()
    site.put(1)
    site.put(2, name="old.parquet")
    site.put(2, name="old.parquet")  # only the version that is current counts
    told_of = site.fetch("SELECT identity FROM kfm.inbox")

    found = register_windows(site.services, site.dataset, START, START + timedelta(hours=5), "ana")

    assert (found.objects, found.events, found.new_keys) == (3, 2, 4)
    [audited] = site.fetch("SELECT actor, detail FROM kfm.audit WHERE action = 'windows-registered'")
    assert (audited["actor"], audited["detail"]["windows"]) == ("ana", 5)
    with pytest.raises(ReplayRefused, match="reaches beyond the calendar; register up to an earlier time"):
        register_windows(site.services, site.dataset, *END_OF_TIME, "ana")
    assert list(found.keys) == [site.key(hour) for hour in range(5)]
    shapes = site.fetch("SELECT shape, count(*) AS n FROM kfm.inbox GROUP BY shape ORDER BY shape")
    assert [(row["shape"], row["n"]) for row in shapes] == [("s3-listing", 2), (shapes[1]["shape"], 1)]
    assert {row["key"] for row in site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL")} == {site.key(0)}
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox WHERE ready_at = 'infinity'") == [{"n": 2}]
    again = register_windows(site.services, site.dataset, START, START + timedelta(hours=5), "ana")
    assert (again.objects, again.events, again.new_keys) == (3, 0, 0)
    before = site.fetch("SELECT identity FROM kfm.inbox ORDER BY identity")
    assert told_of[0] in before
    site.drain()  # the notifications of hours 1 and 2, and of the version that is replaced
    after = site.fetch("SELECT identity FROM kfm.inbox ORDER BY identity")
    assert len(after) == len(before) + 1
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox WHERE key LIKE '%T01Z%'") == [{"n": 1}]
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL ORDER BY key") == [
        {"key": site.key(hour)} for hour in range(3)
    ]
    close_windows(site, START + timedelta(hours=4))
    assert planned(site, 5, "upgrade").left_out[-1].why.startswith("its window is not closed: the watermark is")
    close_windows(site)
    plan = planned(site, 5, "upgrade")
    assert [one.key for one in plan.chosen] == [site.key(hour) for hour in range(3)]
    assert {one.why for one in plan.left_out} == {"no object of its window is known"}


def test_a_registered_window_is_published_by_its_replay_and_by_nobody_else(site: Site) -> None:
    site.put(1)
    register_windows(site.services, site.dataset, START, START + timedelta(hours=2), "ana")
    close_windows(site)
    plan = planned(site, 2, "upgrade")
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL") == []
    assert carried_out(site, plan.id).state == "done"
    assert outcomes(site, plan.id) == {site.key(1): ["APPLIED"]}


def test_what_is_registered_late_is_released_by_whoever_registers_it(site: Site) -> None:
    declare(site, late="quarantine", watermark={"out_of_order": "1 h"})
    site.put(0)
    site.put(10)
    site.drain()
    site.put(1)
    register_windows(site.services, site.dataset, START, START + timedelta(hours=3), "ana")
    rows = site.fetch("SELECT key, state, changed_by FROM kfm.late WHERE is_late")
    assert rows == [{"key": site.key(1), "state": "released", "changed_by": "ana"}]
    audited = site.fetch("SELECT actor, key FROM kfm.audit WHERE action = 'late-released'")
    assert audited == [{"actor": "ana", "key": site.key(1)}]
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL AND key LIKE '%T01Z%'") == []


def test_an_upgrade_takes_whole_windows_and_leaves_alone_what_is_published(site: Site) -> None:
    """Hour 0 was uploaded again and is published of the version declared now."""
    old = published_hours(site, 2)
    declare(site, key={"transform_version": "v1-0-1"})
    site.put(0, name="corrected.parquet")
    assert site.work()["published"] == 1
    new = [site.key(hour).replace("v1-0-0", "v1-0-1") for hour in range(2)]
    for where in ((), ("version=v1-0-0",)):
        plan = planned(site, 2, "upgrade", *where)
        assert {one.key: one.why for one in plan.left_out} == {new[0]: "is published already, revision 1"}
        assert [(one.key, one.source) for one in plan.chosen] == [(new[1], old[1])]
    taken = "SELECT key, inputs_from FROM kfm.keys WHERE inputs_from IS NOT NULL ORDER BY key"
    assert site.fetch(taken) == []  # a plan is only a plan
    assert carried_out(site, plan.id).note == "1 keys done"
    assert site.fetch(taken) == [{"key": new[1], "inputs_from": old[1]}]

    declare(site, key={"transform_version": "v1-0-2"})  # what was upgraded has its inputs from elsewhere
    plan = planned(site, 2, "upgrade")
    assert [one.source for one in plan.chosen] == new
    assert carried_out(site, plan.id).note == "2 keys done"
    rows = site.fetch("SELECT DISTINCT rows FROM kfm.revisions WHERE key LIKE '%v1-0-2'")
    assert rows == [{"rows": 68}]

    declare(site, key={"transform_version": "v1-0-3", "window": "day"})
    with pytest.raises(ReplayRefused, match="its window is not one day, as windows of usgs/streamflow are now"):
        planned(site, 24, "upgrade")
    assert site.fetch("SELECT key FROM kfm.keys WHERE key LIKE '%v1-0-3'") == []


def test_what_was_masked_is_not_upgraded_without_its_policy(site: Site) -> None:
    register = with_reviewer(site)
    register.publish(sites(register.dataset))
    site.services.database.execute(
        "INSERT INTO kfm.checkpoints (dataset, partition, watermark) VALUES ('heritage/sites', '*', '2026-12-01')"
        " ON CONFLICT (dataset, partition) DO UPDATE SET watermark = excluded.watermark"
    )
    path = site.services.settings.resources / "datasets/heritage-sites.yaml"
    version = {**yaml.safe_load(path.read_text())["key"], "transform_version": "v1-0-1"}
    change(path, key=version)
    read_again(site)
    wish = ReplayRequest("heritage/sites", MONTH, MONTH + timedelta(days=1), "upgrade")
    assert len(make_plan(site.services, wish, "ana").chosen) == 1
    change(path, policy="not-sensitive", review="none")
    read_again(site)
    with pytest.raises(ReplayRefused, match="its inputs are masked by policy heritage-sites, and"):
        make_plan(site.services, wish, "ana")

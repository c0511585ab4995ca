"""A plan names its keys, the reasons and the configuration."""

from dataclasses import replace
from datetime import timedelta

import pytest
import yaml

from kfm_pipelines.catalog.trust import environment
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.kill_switch.switch import kill
from kfm_pipelines.operations.replay import plan as configuration
from kfm_pipelines.operations.replay.choose import KeyFilter
from kfm_pipelines.operations.replay.plan import ReplayRequest, make_plan, snapshot_config
from kfm_pipelines.state.audit import digest_of
from kfm_pipelines_tests.fixtures.care.register import MONTH, sites, with_reviewer
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.runs.batches import publish
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.runs.replay import (
    close_windows,
    declare,
    planned,
    published_hours,
    read_again,
    started,
)
from kfm_pipelines_tests.fixtures.sites.site import START, Site


@pytest.mark.slow
def test_every_key_is_in_or_out_for_a_reason(site: Site) -> None:
    published_hours(site, 3)
    site.put(3, spoiled(3))
    site.drain()
    publish(site.services, site.dataset, [site.key(3)], "red")
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
    _conditions_narrow_the_choice(site)

    kill(site.services, "usgs/streamflow", "ana", "a leak")
    with pytest.raises(ReplayRefused, match="is killed by ana: a leak"):
        planned(site, 6)


def _conditions_narrow_the_choice(site: Site) -> None:
    def chosen(*where: str) -> list[str]:
        plan = planned(site, 6, "upgrade", *where)
        return [one.key for one in plan.keys]

    every = [site.key(hour) for hour in (0, 1, 2, 3, 5)]
    assert chosen() == every
    assert chosen("state=failed") == [site.key(3)]
    assert chosen("state=unpublished") == [site.key(3), site.key(5)]
    assert chosen("version=v1-0-0", "late=no") == every
    assert [one.key for one in planned(site, 6, "reproduce", "state=published").keys] == every[:3]
    with pytest.raises(ReplayRefused, match=r"none of the 5 keys .* matches --where"):
        chosen("version=v9")
    for wrong in ("colour=red", "state", "state=lost", "late=maybe"):
        with pytest.raises(ReplayRefused):
            KeyFilter.parse([wrong])


def test_keys_can_be_chosen_by_partition_and_lateness(site: Site) -> None:
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


def test_a_plan_is_for_one_configuration(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.slow
def test_an_upgrade_takes_whole_windows_and_leaves_published_keys_alone(site: Site) -> None:
    """Hour 0 was uploaded again and is published in the version declared now."""
    old = published_hours(site, 2)
    declare(site, key={"transform_version": "v1-0-1"})
    site.put(0, name="corrected.parquet")
    site.drain()
    publish(site.services, site.dataset, [site.key(0).replace("v1-0-0", "v1-0-1")], "corrected")
    new = [site.key(hour).replace("v1-0-0", "v1-0-1") for hour in range(2)]
    for where in ((), ("version=v1-0-0",)):
        plan = planned(site, 2, "upgrade", *where)
        assert {one.key: one.why for one in plan.left_out} == {new[0]: "is published already, revision 1"}
        assert [(one.key, one.source) for one in plan.chosen] == [(new[1], old[1])]
    taken = "SELECT key, inputs_from FROM kfm.keys WHERE inputs_from IS NOT NULL ORDER BY key"
    assert site.fetch(taken) == []  # a plan is only a plan
    assert started(site, plan.id).note == "1 keys done"
    assert site.fetch(taken) == [{"key": new[1], "inputs_from": old[1]}]

    declare(site, key={"transform_version": "v1-0-2"})  # the inputs of an upgraded key are another key's
    plan = planned(site, 2, "upgrade")
    assert [one.source for one in plan.chosen] == new
    assert started(site, plan.id).note == "2 keys done"
    rows = site.fetch("SELECT DISTINCT rows FROM kfm.revisions WHERE key LIKE '%v1-0-2'")
    assert rows == [{"rows": 68}]

    declare(site, key={"transform_version": "v1-0-3", "window": "day"})
    with pytest.raises(ReplayRefused, match="its window is not one day, as windows of usgs/streamflow are now"):
        planned(site, 24, "upgrade")
    assert site.fetch("SELECT key FROM kfm.keys WHERE key LIKE '%v1-0-3'") == []


@pytest.mark.slow
def test_masked_inputs_are_not_upgraded_without_their_policy(site: Site) -> None:
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
    request = ReplayRequest("heritage/sites", MONTH, MONTH + timedelta(days=1), "upgrade")
    assert len(make_plan(site.services, request, "ana").chosen) == 1
    change(path, policy="not-sensitive", review="none")
    read_again(site)
    with pytest.raises(ReplayRefused, match="its inputs are masked by policy heritage-sites, and"):
        make_plan(site.services, request, "ana")

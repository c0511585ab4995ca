"""What upstreams publish becomes work of the datasets derived from them: all of it, once, and in whatever order."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.catalog.lineage.graph import query_graph, read_key_lineage, write_graph
from kfm_pipelines.inbox import releases
from kfm_pipelines.inbox.releases import all_announced, announce_releases
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.replay.register import register_windows
from kfm_pipelines.operations.verify import load_trust_root, verify_key
from kfm_pipelines.producer.samples import streamflow_object, tribal_areas_object
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings, shipped_path
from kfm_pipelines.stages.trigger import RunTrigger
from kfm_pipelines.state.wal import Outcome
from kfm_pipelines_tests.fixtures.runs.batches import publish, work_in_batches
from kfm_pipelines_tests.fixtures.runs.replay_runs import close_until, last_of, plan_replay
from kfm_pipelines_tests.fixtures.sites.site import OWN, START, Site, opened_site

ATLAS = "atlas/drought-streamflow"
DATASETS = (*OWN, "atlas-drought-streamflow")
WEEK = "atlas-drought-streamflow:kansas_statewide:5:2025-W49:v1-0-0"
TUESDAY = datetime(2025, 12, 2, tzinfo=UTC)
MAP = "drought-tribal-areas:united_states:none:2025-12-02:v1-0-0"
DUE = "SELECT key FROM kfm.keys WHERE due_at IS NOT NULL ORDER BY key"


@pytest.fixture
def derived(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """A site with the shipped derived dataset."""
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, DATASETS) as site:
        yield site


def put_map(site: Site, seed: int = 0) -> None:
    object_key, data = tribal_areas_object(TUESDAY, seed=seed)
    s3_client().put_object(Bucket=site.bucket, Key=object_key, Body=data)


def publish_keys(site: Site, *keys: str) -> None:
    """Publishes what the queue has of these keys of one dataset, and announces nothing."""
    site.drain()
    publish(site.services, site.dataset_of(keys[0]), keys, f"run-of-{keys[0]}")


def due(site: Site) -> list[str]:
    return [row["key"] for row in site.fetch(DUE)]


def announced_count(site: Site) -> int:
    [row] = site.fetch(f"SELECT count(*) AS n FROM kfm.inbox WHERE dataset = '{ATLAS}'")
    return int(row["n"])


def revisions(site: Site, key: str = WEEK) -> list[dict[str, Any]]:
    return site.fetch(f"SELECT revision, content_hash FROM kfm.revisions WHERE key = '{key}' ORDER BY revision")


def test_a_week_follows_from_its_hours_and_its_map(derived: Site) -> None:
    """Publishes, corrects and repeats inputs, and never sends an event of the derived dataset."""
    for hour in (0, 1):
        derived.put(hour)
    put_map(derived)
    assert work_in_batches(derived)["failed"] == 0
    assert due(derived) == []
    item = json.loads((derived.data / "catalog/atlas-drought-streamflow/items" / f"{WEEK}.json").read_bytes())
    sources = [link for link in item["links"] if link["rel"] == "derived_from"]
    items = derived.data / "catalog/atlas-drought-streamflow/items"
    assert [json.loads((items / link["href"]).read_bytes())["id"] for link in sources] == [
        MAP, derived.key(0), derived.key(1),
    ]  # fmt: skip
    assert item["properties"]["kfm:sovereignty"]["notice"].startswith("This describes the lands of sovereign nations")
    assert "tk:attribution" in item["properties"]["kfm:labels"]
    assert "kfm:late_inputs" not in item["properties"]
    before = revisions(derived)

    derived.put(1, streamflow_object(START + timedelta(hours=1), seed=7)[1])  # a correction
    work_in_batches(derived)
    corrected = revisions(derived)
    assert len(corrected) == len(before) + 1
    assert corrected[-1]["content_hash"] != before[-1]["content_hash"]

    derived.put(1, streamflow_object(START + timedelta(hours=1), seed=7)[1])  # the same bytes again
    work_in_batches(derived)
    assert revisions(derived) == corrected
    assert all_announced(derived.services)


def test_nothing_is_lost_between_a_publication_and_its_announcement(derived: Site) -> None:
    """The process of the publication ends before anybody announces it; the next one has never heard of it."""
    derived.put(0)
    publish_keys(derived, derived.key(0))
    assert (announced_count(derived), due(derived)) == (0, [])
    assert not all_announced(derived.services)
    other = Services(load_settings())
    try:
        assert announce_releases(other) == []
    finally:
        other.close()
    assert (announced_count(derived), due(derived)) == (1, [WEEK])
    assert all_announced(derived.services)


def test_nothing_is_lost_between_an_event_and_the_record_that_all_are_announced(
    derived: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived.put(0)
    publish_keys(derived, derived.key(0))
    with monkeypatch.context() as patch:
        patch.setattr(releases, "record_mark", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            announce_releases(derived.services)
    publish(derived.services, derived.services.datasets[ATLAS], [WEEK], "run-1")
    announce_releases(derived.services)
    assert (announced_count(derived), due(derived), len(revisions(derived))) == (1, [], 1)


def test_two_ticks_at_once_announce_once(derived: Site) -> None:
    for hour in range(3):
        derived.put(hour)
    publish_keys(derived, *(derived.key(hour) for hour in range(3)))
    several = [Services(load_settings()) for _ in range(4)]
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [problem for found in pool.map(announce_releases, several) for problem in found] == []
    finally:
        for one in several:
            one.close()
    assert announced_count(derived) == 3
    [totals] = derived.fetch("SELECT recorded FROM kfm.queue_totals WHERE queue = 'kfm-releases'")
    assert totals["recorded"] == 3


def test_a_tick_announces_so_many_and_the_next_one_the_rest(derived: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "MAX_ANNOUNCED", 2)
    for hour in range(3):
        derived.put(hour)
    publish_keys(derived, *(derived.key(hour) for hour in range(3)))
    announced = []
    for _ in range(3):
        announce_releases(derived.services)
        announced.append((announced_count(derived), all_announced(derived.services)))
    assert announced == [(2, False), (3, True), (3, True)]


def test_the_order_in_which_upstreams_publish_does_not_matter(stack: Stack, site_template: str, tmp_path: Path) -> None:
    trees = []
    for number, order in enumerate(("m01", "1m0")):  # the map and two hours
        url = stack.environment["KFM_POSTGRES_URL"]
        with opened_site(tmp_path / str(number), url, site_template, DATASETS) as site:
            for one in order:
                if one == "m":
                    put_map(site)
                else:
                    site.put(int(one))
                publish_keys(site, MAP if one == "m" else site.key(int(one)))
                announce_releases(site.services)
                publish(site.services, site.services.datasets[ATLAS], [WEEK], f"run-{one}")
            assert len(revisions(site)) == 3
            trees.append(site.tree("processed/atlas-drought-streamflow", "catalog/atlas-drought-streamflow/items"))
    assert len(trees[0]) == 2
    assert trees[0] == trees[1]


def test_what_was_published_before_a_dataset_was_declared_is_announced(site: Site) -> None:
    site.put(0)
    publish_keys(site, site.key(0))
    declaration = "datasets/atlas-drought-streamflow.yaml"
    shutil.copy(shipped_path("resources") / declaration, site.services.settings.resources / declaration)
    later = Services(load_settings())
    try:
        announce_releases(later)
        assert due(site) == [WEEK]
        publish(later, later.datasets[ATLAS], [WEEK], "run-1")
    finally:
        later.close()
    assert len(revisions(site)) == 1


def test_a_new_transform_version_gets_everything_again(derived: Site) -> None:
    derived.put(0)
    publish_keys(derived, derived.key(0))
    announce_releases(derived.services)
    declaration = derived.services.settings.resources / "datasets/atlas-drought-streamflow.yaml"
    declaration.write_text(declaration.read_text().replace("v1-0-0", "v1-1-0"))
    later = Services(load_settings())
    try:
        announce_releases(later)
    finally:
        later.close()
    assert due(derived) == [WEEK, WEEK.replace("v1-0-0", "v1-1-0")]


def test_what_only_an_exemption_has_released_is_not_announced(derived: Site) -> None:
    """It will be withdrawn, and could not be withdrawn from what was made of it."""
    derived.put(0)
    publish_keys(derived, derived.key(0))
    derived.services.database.execute(
        """
        INSERT INTO kfm.audit (action, actor, dataset, key, policy, digest, detail)
        SELECT 'exempted', 'kfm', 'usgs/streamflow', key, 'some', content_hash, '{}' FROM kfm.revisions
        """
    )
    announce_releases(derived.services)
    assert announced_count(derived) == 0


def test_registering_windows_finds_what_upstreams_have_published(derived: Site) -> None:
    derived.put(0)
    publish_keys(derived, derived.key(0))
    monday = TUESDAY - timedelta(days=1)
    found = register_windows(
        derived.services, derived.services.datasets[ATLAS], monday, monday + timedelta(days=14), "ana"
    )
    assert (found.objects, found.events, found.new_keys) == (1, 1, 2)
    assert due(derived) == []
    announce_releases(derived.services)  # the same event, which is asked for now
    assert (announced_count(derived), due(derived)) == (1, [WEEK])


def test_a_week_is_verified_and_reproduced_like_any_other_key(derived: Site) -> None:
    derived.put(0)
    publish_keys(derived, derived.key(0))
    announce_releases(derived.services)
    services, dataset = derived.services, derived.services.datasets[ATLAS]
    publish(services, dataset, [WEEK], "run-1")
    close_until(services, ATLAS, TUESDAY + timedelta(days=30))
    before = derived.tree("processed/atlas-drought-streamflow", "catalog/atlas-drought-streamflow/items")
    trust = load_trust_root(services.store, services.settings.signing_key, None)
    assert verify_key(services.store, trust, WEEK).failed == ()

    shutil.rmtree(derived.data / "processed/atlas-drought-streamflow")
    replay = plan_replay(services, ATLAS, [WEEK])
    publish(services, dataset, [WEEK], "again", RunTrigger(replay=replay))
    assert last_of(services, WEEK).outcome is Outcome.APPLIED
    assert derived.tree("processed/atlas-drought-streamflow", "catalog/atlas-drought-streamflow/items") == before


def test_lineage_leads_from_a_week_to_the_objects_of_its_hours(derived: Site) -> None:
    for hour in (0, 1):
        derived.put(hour)
    publish_keys(derived, derived.key(0), derived.key(1))
    announce_releases(derived.services)
    publish(derived.services, derived.services.datasets[ATLAS], [WEEK], "run-1")
    write_graph(derived.services)
    week = read_key_lineage(derived.services, WEEK, derived.services.datasets[ATLAS])
    address = f"kfm://usgs-streamflow/{derived.key(0)}"
    assert [source["address"] for source in week.sources] == [address, address.replace("T00Z", "T01Z")]
    of_hour = read_key_lineage(derived.services, derived.key(0), derived.dataset)
    assert [(one["address"], one["key"]) for one in of_hour.sharing] == [(address, WEEK)]
    found = query_graph(
        derived.services,
        f"""
        SELECT DISTINCT ?object WHERE {{
            ?release dcterms:identifier "{WEEK}" ; prov:hadMember / prov:wasDerivedFrom+ / prov:specializationOf ?object
        }} ORDER BY ?object
        """,
    )
    objects = [str(row["object"]) for row in found]
    assert objects[0] == address
    assert objects[2].startswith(f"s3://{derived.bucket}/usgs/streamflow/2025/12/04/00/")

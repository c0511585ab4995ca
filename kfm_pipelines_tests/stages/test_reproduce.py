"""A published release is reproduced byte for byte, or the changes are reported and nothing is published."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kfm_pipelines.care.signatures import create_private_key
from kfm_pipelines.catalog.stac import item as stac
from kfm_pipelines.energy.ledger import key_totals_of_replay
from kfm_pipelines.errors import ReplayRefused, ServiceUnavailable
from kfm_pipelines.operations.verify import load_trust_root, verify_key
from kfm_pipelines.parquet.parquet import write_published
from kfm_pipelines.services import Services
from kfm_pipelines.stages import batch
from kfm_pipelines.stages import reproduce as reproduction
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.compute import members
from kfm_pipelines.stages.config import changes as configuration_changes
from kfm_pipelines.stages.config import key_config
from kfm_pipelines.stages.config.key_config import KeyConfig, KeyConfigs
from kfm_pipelines.stages.publish import release
from kfm_pipelines.stages.reproduce import REPRODUCED
from kfm_pipelines.stages.trigger import RunTrigger
from kfm_pipelines.state.wal import Outcome, Step
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.runs.batches import UploadedObject, applied, publish, receive, stage, upload
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.runs.energy import stage_totals
from kfm_pipelines_tests.fixtures.runs.replay_runs import close_until, last_of, plan_replay, whole_tree
from kfm_pipelines_tests.fixtures.sites.site import START, Site

DAYS = 31


def with_days(site: Site) -> Site:
    """Declares daily keys."""
    return declared_anew(site, "usgs-streamflow", lambda document: document["key"].update(window="day"))


def a_day(site: Site, day: int) -> str:
    """Uploads an object for the day and receives its message; returns the key."""
    key = f"usgs-streamflow:kansas_statewide:none:{START + timedelta(days=day):%Y-%m-%d}:v1-0-0"
    receive(site.services, UploadedObject(key, site.s3_message(site.put(24 * day))))
    return key


def reproduce(services: Services, keys: Sequence[str], run_id: str = "again") -> str:
    """Runs a replay over these keys; returns its id."""
    dataset = services.datasets["usgs/streamflow"]
    replay = plan_replay(services, dataset.dataset, keys)
    publish(services, dataset, keys, run_id, RunTrigger(replay=replay))
    return replay


@pytest.mark.slow
def test_a_month_comes_back_byte_for_byte_in_an_empty_store(site: Site, tmp_path: Path) -> None:
    site = with_days(site)
    # Without a fixed time: a revision states when it was first published.
    services = Services(replace(site.services.settings, source_date_epoch=None))
    site = replace(site, services=services)
    keys = [a_day(site, day) for day in range(DAYS)]
    publish(services, site.dataset, keys, "first")
    close_until(services, site.dataset.dataset, START + timedelta(days=DAYS))
    before = whole_tree(site.data)
    assert len([path for path in before if path.startswith("processed/")]) == DAYS
    assert len([path for path in before if path.startswith("ingest/events/")]) == DAYS

    site.data.rename(tmp_path / "lost")
    services.cache.clear()  # as in another process
    replay = reproduce(services, keys)
    after = whole_tree(site.data)
    assert sorted(after) == sorted(before)
    assert [path for path in after if after[path] != before[path]] == []
    assert applied(services) == dict.fromkeys(keys, 2)
    assert {row["revision"] for row in site.fetch("SELECT revision FROM kfm.revisions")} == {1}

    # Reproducing what is there changes nothing.
    reproduce(services, keys[:3], "and again")
    assert {(last_of(services, key).outcome, last_of(services, key).detail["reason"]) for key in keys[:3]} == {
        (Outcome.SKIPPED, REPRODUCED)
    }
    assert whole_tree(site.data) == after
    assert not list((site.data / "work").rglob("*.parquet"))
    begun = site.fetch(f"SELECT count(*) AS n FROM kfm.wal WHERE step = 'begin' AND detail->>'replay' = '{replay}'")
    assert begun == [{"n": DAYS}]
    spent = key_totals_of_replay(services.database, replay)
    assert spent.keys() == set(keys)
    services.close()


@pytest.fixture
def published(site: Site) -> Site:
    """A site with one key published and its window closed."""
    receive(site.services, upload(site))
    publish(site.services, site.dataset, [site.key()], "first")
    close_until(site.services, site.dataset.dataset, START + timedelta(days=1))
    return site


def refused(site: Site, services: Services | None = None) -> str:
    """Returns why the key cannot be reproduced, and asserts that nothing has changed but the log."""
    before, services = whole_tree(site.data), services or site.services
    keys = site.fetch("SELECT key, attempts, due_at, owner FROM kfm.keys")
    reproduce(services, [site.key()])
    last = last_of(services, site.key())
    assert (last.outcome, last.detail["refused"]) == (Outcome.FAILED, True)
    assert whole_tree(site.data) == before
    assert not list((site.data / "work").rglob("*.parquet"))
    assert site.fetch("SELECT key, attempts, due_at, owner FROM kfm.keys") == keys
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    return str(last.detail["reason"]).removeprefix(f"{site.key()}: cannot be reproduced: ")


def is_reproduced(site: Site, services: Services | None = None) -> bool:
    reproduce(services or site.services, [site.key()])
    return last_of(site.services, site.key()).detail.get("reason") == REPRODUCED


def test_changes_since_publication_are_named(published: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site, now = published, key_config.environment_document(published.services.settings.store_url)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"libraries": {**now["libraries"], "pyarrow": "26.0.0"}}, f"pyarrow {now['libraries']['pyarrow']} -> 26.0.0"),
        ({"libraries": {**now["libraries"], "made-up": "1"}}, "made-up not installed -> 1"),
        ({"python": "3.14.0"}, f"python {now['python']} -> 3.14.0"),
        ({"commit": "f" * 40}, f"commit {now['commit'] or 'unknown'} -> {'f' * 40}"),
        ({"storage": {"bucket": "other", "region": None}}, "storage.bucket unknown -> other"),
    ]
    for changed, expected in changes:
        with monkeypatch.context() as patch:
            document = now | changed
            patch.setattr(configuration_changes, "environment_document", lambda _, document=document: document)
            assert refused(site) == expected

    policy = site.services.settings.resources / "policies" / "not-sensitive.yaml"
    text = policy.read_text()
    policy.write_text(text.replace("version: 2", "version: 3"))
    assert refused(site, Services(site.services.settings)) == "the policy was not-sensitive@2 and is not-sensitive@3"
    policy.write_text(text)

    # The key stays due.
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    other_key = site.root / "other.pem"
    create_private_key(other_key)
    signing = Services(replace(site.services.settings, signing_key=other_key))
    assert refused(site, signing).startswith("it was signed with key ")

    anew = declared_anew(site, "usgs-streamflow", lambda document: document.update(title="Rivers"))
    assert refused(site, anew.services) == "the declaration's title has changed"
    # A field that shapes no bytes is no change.
    declared_anew(site, "usgs-streamflow", lambda document: document.update(title=site.dataset.title))
    anew = declared_anew(site, "usgs-streamflow", lambda document: document["tags"].update(cadence="often"))
    assert is_reproduced(site, anew.services)


def test_a_changed_object_is_named(site: Site) -> None:
    """S3 keeps versions, so an overwritten object can still be read by its version."""
    pinned, unpinned = site.put(0), site.put(1)
    receive(site.services, UploadedObject(site.key(0), site.s3_message(pinned)))
    receive(site.services, UploadedObject(site.key(1), site.s3_message(unpinned, version_id=None)))
    keys = [site.key(hour) for hour in range(2)]
    publish(site.services, site.dataset, keys, "first")
    close_until(site.services, site.dataset.dataset, START + timedelta(days=1))
    site.put(0, b"something else")
    site.put(1, b"x" * unpinned.size)

    reproduce(site.services, keys)
    assert last_of(site.services, keys[0]).detail["reason"] == REPRODUCED
    reason = last_of(site.services, keys[1]).detail["reason"]
    assert f"s3://{site.bucket}/{unpinned.object_key} has ETag " in reason
    assert f"; the event promised {unpinned.etag}" in reason

    # Once received, it is a waiting input, and the published release is outdated.
    receive(site.services, upload(site, version=2))
    reproduce(site.services, keys[:1], "third")
    reason = last_of(site.services, keys[0]).detail["reason"]
    assert "was written again with" in reason
    [row] = site.fetch(f"SELECT due_at IS NOT NULL AS due FROM kfm.keys WHERE key = '{keys[0]}'")
    assert row["due"]
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox WHERE state = 'received'") == [{"n": 1}]
    # A replay does not retry a failed event.
    for state in ("started", "failed"):
        site.services.database.execute(
            "UPDATE kfm.inbox SET state = %(state)s WHERE state IN ('received', 'started')", {"state": state}
        )
    reproduce(site.services, keys[:1], "fourth")
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox WHERE state = 'failed'") == [{"n": 1}]


def test_an_older_version_is_reproduced_after_another_was_declared(published: Site, tmp_path: Path) -> None:
    site = published
    before = whole_tree(site.data)

    def declare(document: dict[str, Any]) -> None:
        document["key"]["transform_version"] = "v2-0-0"
        document["title"] = "Rivers"

    anew = declared_anew(site, "usgs-streamflow", declare)
    assert is_reproduced(site, anew.services)
    site.data.rename(tmp_path / "lost")
    anew.services.cache.clear()
    reproduce(anew.services, [site.key()], "restoring")
    assert last_of(site.services, site.key()).outcome is Outcome.APPLIED
    # Except documents that describe the current declaration.
    after = whole_tree(site.data)
    assert sorted(after) == sorted(before)
    differing = {path.rsplit("/", 1)[-1] for path in after if after[path] != before[path]}
    assert differing <= {"collection.json", "dcat.jsonld", "catalog.json"}


def test_a_change_of_lateness_is_named(published: Site) -> None:
    """Later events may change what counts as late, and a release states which of its inputs were late."""
    site, database = published, published.services.database
    [row] = site.fetch("SELECT asset_uri FROM kfm.inbox")
    database.execute(
        "INSERT INTO kfm.late (identity, key, dataset, rule, state)"
        " SELECT identity, key, dataset, 'patch', 'applied' FROM kfm.inbox"
    )
    assert refused(site) == f"{row['asset_uri']} is late"
    publish(site.services, site.dataset, [site.key()], "as late")
    assert is_reproduced(site)
    database.execute("DELETE FROM kfm.late")
    assert refused(site) == f"{row['asset_uri']} is not late any more"


def test_only_the_last_revision_of_a_lost_store_is_restored(published: Site, tmp_path: Path) -> None:
    site, key = published, published.key()
    for version in (1, 2):
        receive(site.services, upload(site, version=version))
        publish(site.services, site.dataset, [key], f"version {version}")
    assert last_of(site.services, key).detail == {"revision": 3}
    item = (site.data / Layout(site.dataset.pipeline).item(key)).read_bytes()
    site.data.rename(tmp_path / "lost")
    site.services.cache.clear()  # as in another process
    reproduce(site.services, [key])
    assert (site.data / Layout(site.dataset.pipeline).item(key)).read_bytes() == item
    assert last_of(site.services, key).detail == {
        "revision": 3,
        "reason": "revision 3; 2 revisions from 1 to 2 are not in the store any more and not restored",
    }
    trust = load_trust_root(site.services.store, site.services.settings.signing_key, None)
    verified = verify_key(site.services.store, trust, key)
    assert verified.failed == ()
    assert [one.found for one in verified.checks if one.note] == [
        "2 revisions from 1 to 2 are missing: withdrawn, or lost when only the last revision of a store was restored"
    ]


def test_unpublished_keys_and_missing_snapshots_are_distinguished(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    receive(site.services, upload(site))
    close_until(site.services, site.dataset.dataset, START + timedelta(days=1))
    reproduce(site.services, [site.key()])
    assert "nothing of it is published" in last_of(site.services, site.key()).detail["reason"]
    with monkeypatch.context() as patch:
        patch.setattr(KeyConfig, "as_detail", lambda *_: {})
        publish(site.services, site.dataset, [site.key()], "as it was once")
    assert "published before configurations were kept" in refused(site)


def test_different_bytes_are_refused(published: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """For whatever reason: a snapshot cannot contain everything."""
    with monkeypatch.context() as patch:
        patch.setattr(batch, "write_published", lambda table, *rest, **how: write_published(table[1:], *rest, **how))
        assert refused(published).startswith("its data comes out as ")
    with monkeypatch.context() as patch:
        patch.setattr(stac, "PROVENANCE_TITLE", "Something else")
        assert refused(published).startswith("its Item comes out otherwise; its attestation.dsse.json comes out")
    assert is_reproduced(published)


def test_a_failure_does_not_make_a_key_of_a_replay_due(published: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replay retries it, unless it is paused or cancelled."""

    def away(*_: object) -> None:
        raise ServiceUnavailable("S3 is away")

    site, key = published, published.key()
    replay = plan_replay(site.services, site.dataset.dataset, [key], mode="upgrade")
    (site.data / Layout(site.dataset.pipeline).item(key)).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(members, "fetch", away)
        failed = publish(site.services, site.dataset, [key], "unlucky", RunTrigger(replay=replay))
    assert failed.notes == {key: "its replay retries it: S3 is away"}
    assert last_of(site.services, key).detail == {"reason": "S3 is away", "again_in_seconds": None}
    assert site.fetch("SELECT attempts, due_at FROM kfm.keys") == [{"attempts": 1, "due_at": None}]
    publish(site.services, site.dataset, [key], "luckier", RunTrigger(replay=replay))
    assert applied(site.services) == {key: 2}


def test_a_publication_that_a_replay_began_is_completed_without_it(
    published: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers may see half of it, and the replay may never be carried on."""

    def away(*_: object) -> None:
        raise ServiceUnavailable("the store is away")

    site, key = published, published.key()
    replay = plan_replay(site.services, site.dataset.dataset, [key], mode="upgrade")
    (site.data / Layout(site.dataset.pipeline).item(key)).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(release, "build_history", away)
        failed = publish(site.services, site.dataset, [key], "unlucky", RunTrigger(replay=replay))
    assert failed.notes[key].startswith("retried in ")
    assert last_of(site.services, key).step is Step.PUBLISH
    assert site.fetch("SELECT due_at IS NOT NULL AS due FROM kfm.keys") == [{"due": True}]
    # A replay that refuses it leaves it as due as it was.
    site.services.database.execute("UPDATE kfm.keys SET due_at = NULL")
    with monkeypatch.context() as patch:
        patch.setattr(release, "is_visible", lambda *_: False)
        patch.setattr(KeyConfigs, "for_key", lambda *_: reproduction._refuse_if_changed(key, ["not now"]))
        reproduce(site.services, [key])
    assert site.fetch("SELECT due_at <= clock_timestamp() AS due FROM kfm.keys") == [{"due": True}]
    assert site.work()["published"] == 1
    begun = site.fetch("SELECT detail->>'replay' AS replay, txn FROM kfm.wal WHERE step = 'begin' ORDER BY id")
    assert (begun[-1]["replay"], begun[-1]["txn"]) == (replay, last_of(site.services, key).txn)


def test_the_cost_of_a_key_is_recorded_once(published: Site) -> None:
    site, key = published, published.key()
    replay = plan_replay(site.services, site.dataset.dataset, [key])
    one = stage(site.services, site.dataset, [key], "again", RunTrigger(replay=replay))
    stages = ["compute", "mask", "validate", "stage"]
    assert list(stage_totals(site.services.database, "again")) == stages
    assert one.care_previews([key]) == {}
    entered = site.fetch(f"SELECT stage, key FROM kfm.energy WHERE replay = '{replay}' ORDER BY id")
    assert entered == [{"stage": name, "key": key} for name in stages]


def test_a_run_must_belong_to_the_replay_it_names(site: Site) -> None:
    with pytest.raises(ReplayRefused, match="there is no replay 'unheard-of'"):
        Batch(site.services, site.dataset, "a-run", RunTrigger(replay="unheard-of"))
    replay = plan_replay(site.services, "heritage/sites", [])
    with pytest.raises(ReplayRefused, match=f"replay {replay} is of heritage/sites, not of usgs/streamflow"):
        Batch(site.services, site.dataset, "a-run", RunTrigger(replay=replay))

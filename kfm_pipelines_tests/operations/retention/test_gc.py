"""The collector removes only objects without references and owners, even while others publish."""

import hashlib
import json
import threading
from dataclasses import replace
from uuid import uuid4

import pytest
from click.testing import CliRunner

from kfm_pipelines.catalog.trust.environment import environment_facts
from kfm_pipelines.cli.main import kfm
from kfm_pipelines.operations.retention import gc
from kfm_pipelines.operations.retention.gc import collect_garbage, find_garbage, sweep
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.stages.publish import tables
from kfm_pipelines.state import transactions
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.runs.batches import (
    UploadedObject,
    applied,
    expire_leases,
    publish,
    read_content_hash,
    receive,
    stage,
    storing_in,
    tree,
    upload,
)
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.stores.stops import InterruptedStore, Stopped

EVERYTHING = ("catalog", "objects", "processed", "work")


def layout(site: Site) -> Layout:
    return Layout(site.dataset.pipeline)


def publish_version(site: Site, hour: int, version: int = 0) -> UploadedObject:
    new = upload(site, hour=hour, version=version)
    receive(site.services, new)
    publish(site.services, site.dataset, [new.key], f"run-{uuid4()}")
    return new


def stop_before_swap(site: Site, hour: int) -> str:
    """Kills a publication after its objects are written and before its Item is swapped."""
    new = upload(site, hour=hour)
    receive(site.services, new)

    def stop() -> None:
        raise Stopped

    with storing_in(site.services, InterruptedStore(site.services.store.durable, "swap", stop)), pytest.raises(Stopped):
        publish(site.services, site.dataset, [new.key], f"run-{uuid4()}")
    expire_leases(site.services)
    return new.key


def give_up(site: Site, key: str) -> None:
    claim = Claims(site.services.database, "a-run-that-gives-up", 60).take(key)
    intent = transactions.close_abandoned(site.services.database, claim)
    assert intent is not None
    transactions.abandon_intent(site.services.database, claim, intent, "it must not be")
    transactions.hand_back(site.services.database, claim, delay=0, reason="given up")


def item_of(site: Site, key: str) -> str | None:
    return read_content_hash(site.services.store, layout(site).item(key))


def keep_document(site: Site, data: bytes, kind: str = "json") -> str:
    digest = hashlib.sha256(data).hexdigest()
    path = f"objects/sha256/{digest[:2]}/{digest}.{kind}"
    site.services.store.write(path, data)
    return path


def history_item(path_of_object: str) -> bytes:
    return json.dumps({"type": "Feature", "assets": {"x": {"href": f"../../../../{path_of_object}"}}}).encode()


def test_only_objects_without_references_and_owners_are_removed(site: Site) -> None:
    store = site.services.store
    old = publish_version(site, 0)
    publish_version(site, 0, version=1)
    intended = stop_before_swap(site, 1)
    waiting = upload(site, hour=2)
    receive(site.services, waiting)
    stage(site.services, site.dataset, [waiting.key], "a-run-that-is-at-it")

    sbom = keep_document(site, b"what was installed then")
    named = {"kind": "kfm-run-manifest", "environment": {"sbom": {"sha256": sbom.split("/")[-1].partition(".")[0]}}}
    manifest = keep_document(site, json.dumps(named).encode())
    store.write(f"catalog/usgs-streamflow/history/{old.key}/7.json", history_item(manifest))
    kept_longer = ("work/restricted/red/usgs-streamflow/k/1/x", "work/restricted/shadow/usgs-streamflow/k/v.parquet")
    of_nobody_known = f"work/staged/usgs-streamflow/{site.key(99)}/1/item.json"
    not_yet_begun = f"work/staged/usgs-streamflow/{old.key}/99/item.json"
    for path in (*kept_longer, of_nobody_known, not_yet_begun):
        store.write(path, b"x")
    stays = tree(store, *EVERYTHING)

    unreferenced = [
        keep_document(site, b"nobody's data", "parquet"),
        keep_document(site, b"{}"),
        keep_document(site, b"no"),
    ]
    over = [f"work/{tier}/usgs-streamflow/{old.key}/1" for tier in ("masked", "restricted", "staged")]
    for folder in over:
        store.write(f"{folder}/table.parquet", b"left behind")

    found = find_garbage(site.services)
    assert (found.objects, found.folders, found.refused) == (tuple(sorted(unreferenced)), tuple(over), None)
    collected = collect_garbage(site.services)
    assert (sorted(collected.objects), collected.folders, collected.left) == (sorted(unreferenced), tuple(over), 0)
    assert tree(store, *EVERYTHING) == stays

    publish(site.services, site.dataset, [intended], "a-run-after")
    assert item_of(site, intended)
    assert applied(site.services) == {old.key: 2, intended: 1}
    assert find_garbage(site.services).objects == ()


def test_abandoned_and_withdrawn_objects_are_removed(site: Site) -> None:
    store = site.services.store
    key = publish_version(site, 0).key
    # All but the SBOM, which every revision shares.
    of_the_first = set(store.paths("objects")) - {layout(site).document(environment_facts().sbom)}
    publish_version(site, 0, version=1)
    published = tree(store, "objects")

    give_up(site, stop_before_swap(site, 1))
    given_up = set(store.paths("objects")) - set(published)
    assert len(given_up) >= 3
    assert set(collect_garbage(site.services).objects) == given_up
    assert tree(store, "objects") == published

    # Only an exemption allowed the first revision, so its Item is withdrawn from the history.
    site.services.database.execute(
        """
        INSERT INTO kfm.audit (actor, action, dataset, policy, key, digest)
        SELECT 'somebody', 'exempted', 'usgs/streamflow', 'p', key, content_hash FROM kfm.revisions WHERE revision = 1
        """
    )
    store.discard(f"catalog/usgs-streamflow/history/{key}/1.json")
    assert set(collect_garbage(site.services).objects) == of_the_first
    assert item_of(site, key)


UNREADABLE = (
    (
        "catalog/usgs-streamflow/items/{key}.json",
        b'{"type": "Feature", "as',
        "cannot be read, so its references are unknown",
    ),
    ("catalog/usgs-streamflow/items/{key}.json", b"[]", "cannot be read, so its references are unknown"),
    ("catalog/usgs-streamflow/history/{key}/9.json", b"{}", "cannot be read, so its references are unknown"),
    ("catalog/usgs-streamflow/history/{key}/9.json", b'{"type": "Feature"}', "without references to objects"),
    ("{manifest}", b'{"kind": "kfm-run-manifest"}', "does not match its name"),
)


def test_an_unreadable_document_stops_the_removal_of_objects(site: Site) -> None:
    store = site.services.store
    key = publish_version(site, 0).key
    [row] = site.fetch("SELECT detail->'records'->>'run_manifest.json' AS digest FROM kfm.wal WHERE step = 'publish'")
    unreferenced, left_behind = keep_document(site, b"{}"), f"work/staged/usgs-streamflow/{key}/1/item.json"

    for name, data, why in UNREADABLE:
        path = name.format(key=key, manifest=layout(site).document(row["digest"]))
        whole = store.read(path) if store.exists(path) else None
        store.write(path, data)
        store.write(left_behind, b"x")
        collected = collect_garbage(site.services)
        assert collected.refused is not None
        assert path in collected.refused
        assert why in collected.refused
        assert collected.objects == ()
        assert store.exists(unreferenced)
        assert not store.exists(left_behind)
        result = CliRunner().invoke(kfm, ["gc", "--json"])
        assert (result.exit_code, json.loads(result.stdout)["refused"]) == (1, collected.refused)
        store.discard(path)
        if whole is not None:
            store.write(path, whole)

    dry = CliRunner().invoke(kfm, ["gc", "--dry-run"])
    assert (dry.exit_code, dry.stdout) == (0, f"{unreferenced}\n1 object and 0 work folders would be removed\n")
    assert store.exists(unreferenced)
    result = CliRunner().invoke(kfm, ["gc", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "dry_run": False, "objects": [unreferenced], "folders": [], "left": 0, "refused": None
    }  # fmt: skip
    assert not store.exists(unreferenced)


def test_a_publisher_between_keep_and_swap_loses_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that runs meanwhile leaves everything, garbage included."""
    monkeypatch.setattr(tables, "LONGEST_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(gc, "REFUSALS_IN_A_ROW", 2)
    collector = Services(load_settings(site.environment))
    unreferenced = keep_document(site, b"{}")
    new = upload(site)
    receive(site.services, new)
    collected = []

    def collect() -> None:
        collected.append(collect_garbage(collector))

    with storing_in(site.services, InterruptedStore(site.services.store.durable, "swap", collect)):
        publish(site.services, site.dataset, [new.key], "a-run")

    assert [(one.objects, one.left) for one in collected] == [((), 1)]
    assert item_of(site, new.key)
    assert collect_garbage(collector).objects == (unreferenced,)
    collector.close()


def test_an_object_referenced_after_it_was_found_stays(site: Site) -> None:
    """An abandoned publication is retried: its objects exist already, so none is written again."""
    key = stop_before_swap(site, 0)
    give_up(site, key)
    unreferenced = keep_document(site, b"{}")
    found = find_garbage(site.services)
    assert len(found.objects) >= 4
    publish(site.services, site.dataset, [key], "a-run-after")

    assert sweep(site.services, found).objects == (unreferenced,)

    assert item_of(site, key)


def test_a_publisher_waits_while_objects_are_removed(site: Site) -> None:
    """It has recorded its intent and would find its object right before it is removed."""
    key = stop_before_swap(site, 0)
    give_up(site, key)
    publisher = Services(load_settings(site.environment))
    batch = stage(publisher, site.dataset, [key], "a-run-after")
    thread = threading.Thread(target=batch.publish, args=([key],))

    def come() -> None:
        thread.start()
        thread.join(0.5)

    store = site.services.store
    # Staged objects are owned; pretend they were found before.
    data = tuple(path for path in store.paths("objects") if path.endswith(".parquet"))
    found = replace(find_garbage(site.services), objects=data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "retained_releases", lambda *_, **__: [])
        with storing_in(site.services, InterruptedStore(store, "discard", come)):
            sweep(site.services, found)
    thread.join()

    assert applied(site.services) == {key: 1}
    assert item_of(site, key)
    publisher.close()

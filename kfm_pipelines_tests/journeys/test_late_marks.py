"""Inputs that came after their window had closed are marked in every document of a release."""

import io
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq
from click.testing import CliRunner

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.cli.main import kfm
from kfm_pipelines.operations.verify import load_trust_root, verify_key
from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.release import PublishedRelease
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.stages.compute.inputs import fingerprint
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.runs.batches import UploadedObject, publish, receive
from kfm_pipelines_tests.fixtures.runs.dispatch import parquet
from kfm_pipelines_tests.fixtures.runs.keys import event_of_hour
from kfm_pipelines_tests.fixtures.runs.replay import declare
from kfm_pipelines_tests.fixtures.runs.replay_runs import last_of
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site

SECOND = "second.parquet"


def note_late(site: Site, state: str) -> None:
    """Marks the event of the second object as late, like the inbox."""
    site.services.database.execute(
        "INSERT INTO kfm.late (identity, key, dataset, rule, state) SELECT identity, key, dataset, 'replay',"
        " %(state)s FROM kfm.inbox WHERE asset_uri LIKE '%%/' || %(name)s"
        " ON CONFLICT (identity) DO UPDATE SET state = excluded.state",
        {"state": state, "name": SECOND},
    )


def silence(site: Site) -> None:
    """Turns off S3's own notices; the test sends them."""
    s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})


def published(site: Site, run_id: str) -> PublishedRelease:
    """Publishes the key and returns its release."""
    publish(site.services, site.dataset, [site.key()], run_id)
    shelf = PublishedTree(
        site.services.store, load_trust_root(site.services.store, site.services.settings.signing_key, None)
    )
    return PublishedRelease(shelf, Layout(site.dataset.pipeline).item(site.key()), is_historical=False)


def test_late_inputs_are_marked_in_every_document(site: Site) -> None:
    table = pq.read_table(io.BytesIO(streamflow_object(START)[1]))
    for put in (site.put(data=parquet(table[:40])), site.put(data=parquet(table[40:]), name=SECOND)):
        receive(site.services, UploadedObject(site.key(), site.s3_message(put)))
    note_late(site, "held")
    held = published(site, "while it is held")
    assert (held.manifest["revision"], len(held.manifest["inputs"])) == (1, 1)
    assert "late" not in json.dumps([held.item, held.manifest])

    note_late(site, "released")
    released = published(site, "when it is released")
    assert released.manifest["revision"] == 2
    assert {one["uri"].rsplit("/", 1)[-1] for one in released.manifest["inputs"] if one.get("late")} == {SECOND}
    assert released.item["properties"]["kfm:late_inputs"] == 1
    marked = [link["href"] for link in released.item["links"] if link.get("kfm:late")]
    assert [href.rsplit("/", 1)[-1] for href in marked] == [SECOND]
    assert verify_key(site.services.store, released.tree.trust, site.key()).failed == ()
    verified = CliRunner().invoke(kfm, ["verify", site.key()])
    assert verified.exit_code == 0, verified.output
    begun = site.fetch("SELECT detail FROM kfm.wal WHERE step = 'begin' ORDER BY id DESC LIMIT 1")
    assert [one["late"] for one in begun[0]["detail"]["inputs"]].count(True) == 1
    published(site, "again")
    assert last_of(site.services, site.key()).detail["reason"] == "nothing changed since revision 2"

    # An event that was delivered after others may show that it was not late.
    site.services.database.execute("DELETE FROM kfm.late")
    on_time = published(site, "when it turns out that it is not late")
    assert (on_time.manifest["revision"], len(on_time.manifest["inputs"])) == (3, 2)
    assert "late" not in json.dumps([on_time.item, on_time.manifest])


def test_a_fingerprint_depends_on_lateness_and_is_unchanged_without_it() -> None:
    one, other = event_of_hour(0), event_of_hour(1)
    known = fingerprint([one, other], "config")
    late = fingerprint([one, replace(other, late=True)], "config")
    assert len({known, late, fingerprint([replace(one, late=True), other], "config")}) == 3
    assert known == "086736700f2fcc478d76ab617c0b86bc98585f0cb49cde05d74b864eb975dee8"


def test_held_events_are_named_and_removals_are_not_held(site: Site) -> None:
    declare(site, late="quarantine", watermark={"out_of_order": "1 h"})
    table = pq.read_table(io.BytesIO(streamflow_object(START)[1]))
    silence(site)

    def announce(put: Put, hour: float, **record: Any) -> None:
        message = json.loads(site.s3_message(put, event_time=START + timedelta(hours=hour)))
        [notice] = message["Records"]
        notice["eventName"] = record.get("event", notice["eventName"])
        fields = {**notice["s3"]["object"], **record.get("object", {})}
        notice["s3"]["object"] = {name: value for name, value in fields.items() if value is not None}
        key = site.key((put.window_start - START) // timedelta(hours=1))
        receive(site.services, UploadedObject(key, json.dumps(message)))

    def reasons(*hours: int) -> list[str]:
        run = f"run-{len(site.fetch('SELECT FROM kfm.wal'))}"
        notes = publish(site.services, site.dataset, [site.key(hour) for hour in hours], run).notes
        return [notes.get(site.key(hour), "published") for hour in hours]

    def rows(hour: int) -> list[int]:
        found = site.fetch("SELECT key, rows FROM kfm.revisions ORDER BY revision")
        return [row["rows"] for row in found if row["key"] == site.key(hour)]

    gone, lost, overwritten = (site.put(hour) for hour in range(3))
    for put, hour in ((gone, 0), (lost, 1), (overwritten, 2), (site.put(9), 9)):
        # Of the last one no version is known, so what is fetched is what is there.
        announce(put, hour, object={"versionId": None} if put is overwritten else {})
    assert reasons(0, 1, 2) == ["published"] * 3

    announce(site.put(3), 10)
    [note] = reasons(3)
    assert note == "nothing of this key counts yet: late events about 1 objects are held; see kfm late list"

    announce(site.put(2, data=parquet(table[:30])), 10)
    announce(site.put(2, data=parquet(table[40:]), name=SECOND), 2.5)
    [note] = reasons(2)
    [held] = site.fetch("SELECT identity FROM kfm.late WHERE state = 'held' AND key LIKE '%T02Z%'")
    assert f"a late event about this object is held, {held['identity'][:16]}: see kfm late list" in note

    nothing = {"eTag": None, "size": None}
    announce(gone, 10, event="ObjectRemoved:DeleteMarkerCreated", object={**nothing, "versionId": "marker"})
    announce(lost, 10, event="ObjectRemoved:Delete", object=nothing)
    assert site.fetch("SELECT state FROM kfm.late WHERE key LIKE ANY(ARRAY['%T00Z%', '%T01Z%'])") == [
        {"state": "applied"},
        {"state": "applied"},
    ]
    assert reasons(0, 1) == ["published"] * 2
    assert rows(0)[1:] == rows(1)[1:] == [0]

"""A table shows what is published, as it is published."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.flush import flush_due, flush_now
from kfm_pipelines.sinks.table import sink
from kfm_pipelines.sinks.table.check import differences
from kfm_pipelines.sinks.table.clean import KEYS_FILE
from kfm_pipelines.sinks.table.rows import digest_of_rows
from kfm_pipelines.sinks.table.schema import KEY, REVISION
from kfm_pipelines.sinks.table.tables import history_of_key
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines.state.transactions import KeyFacts, load_facts
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.sinks import (
    assert_table_is_catalog,
    flush,
    keys_in,
    publish_hours,
    published_rows,
    the_table,
)
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow


def test_a_run_writes_its_keys_into_the_table(site: Site) -> None:
    for hour in range(3):
        site.put(hour)
    assert site.work()["published"] == 3
    assert_table_is_catalog(site, [site.key(hour) for hour in range(3)])
    assert list(the_table(site).refs()) == ["main", f"{site.services.today():%Y-%m-%d}"]
    [run] = site.fetch("SELECT DISTINCT run_id FROM kfm.revisions")
    [commit] = site.fetch("SELECT branch, kind, outcome FROM kfm.table_commits")
    assert commit["branch"].startswith(f"run_{run['run_id']}_")
    assert (commit["kind"], commit["outcome"]) == ("publication", "published")


def test_a_revision_replaces_the_rows_of_its_key_only(site: Site) -> None:
    keys = publish_hours(site, range(3))
    flush(site)
    first = the_table(site).current_snapshot()
    publish_hours(site, [1], version=1)
    flush(site)
    assert_table_is_catalog(site, keys)
    revisions = the_table(site).scan(selected_fields=(KEY, REVISION)).to_arrow().group_by([KEY, REVISION]).aggregate([])
    assert sorted(revisions.column(REVISION).to_pylist()) == [1, 1, 2]
    with site.services.database.transaction() as connection:
        history = history_of_key(connection, keys[1])
    assert [one.revision for one in history] == [1, 2]
    assert first is not None
    assert history[0].snapshot == first.snapshot_id


def test_a_table_at_a_tag_has_the_files_of_those_revisions_row_for_row(site: Site) -> None:
    site.services.__dict__["today"] = lambda: date(2026, 5, 1)
    keys = publish_hours(site, range(2))
    flush(site)
    then = {row["key"]: row["content_hash"] for row in site.fetch("SELECT key, content_hash FROM kfm.revisions")}
    site.services.__dict__["today"] = lambda: date(2026, 5, 2)
    publish_hours(site, range(2), version=1)
    flush(site)
    table = the_table(site)
    assert set(table.refs()) == {"main", "2026-05-01", "2026-05-02"}
    at_tag = table.scan().use_ref("2026-05-01").to_arrow()
    for key in keys:
        published = published_rows(site, then[key])
        present = at_tag.filter(pa.compute.equal(at_tag.column(KEY), key))
        assert digest_of_rows(present, published.column_names) == digest_of_rows(published, published.column_names)
        now = table.scan().to_arrow()
        current = now.filter(pa.compute.equal(now.column(KEY), key))
        assert digest_of_rows(current, published.column_names) != digest_of_rows(published, published.column_names)


def test_a_snapshot_lists_what_it_publishes(site: Site) -> None:
    [key] = publish_hours(site, [0])
    flush(site)
    snapshot = the_table(site).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    facts = snapshot.summary.additional_properties
    [listed] = json.loads(facts["kfm.keys"])
    [published] = site.fetch("SELECT content_hash, inputs_hash FROM kfm.revisions")
    assert {name: listed[name] for name in ("key", "revision", "policy", "rows")} == {
        "key": key,
        "revision": 1,
        "policy": "not-sensitive@2",
        "rows": 68,
    }
    assert {name: listed[name] for name in published} == published
    assert set(listed["gates"].values()) == {"green"}
    assert facts["kfm.schema-version"] == "1"
    with the_table(site).io.new_input(facts[KEYS_FILE]).open() as file:
        assert json.loads(file.read())["keys"] == [listed]


def test_what_the_table_has_is_not_written_again(site: Site) -> None:
    keys = publish_hours(site, range(2))
    flush(site)
    before = the_table(site).metadata_location
    assert sink.write(site.services, site.dataset, keys, "test") == {}
    assert the_table(site).metadata_location == before


def test_the_next_tick_writes_what_a_run_could_not(site: Site) -> None:
    keys = publish_hours(site, range(2))
    assert flush_due(site.services) == []
    assert len(site.fetch("SELECT * FROM kfm.outbox")) == 2  # the run that published them comes first
    site.services.database.execute("UPDATE kfm.outbox SET due = clock_timestamp()")
    assert flush_due(site.services) == []
    assert_table_is_catalog(site, keys)


def test_a_table_that_is_not_declared_any_more_is_not_behind(site: Site) -> None:
    publish_hours(site, [0])
    site.services.database.execute("UPDATE kfm.outbox SET due = clock_timestamp()")
    change(site.services.settings.resources / "datasets" / "usgs-streamflow.yaml", tables=None)
    later = Services(site.services.settings)
    assert flush_due(later) == []
    assert site.fetch("SELECT * FROM kfm.outbox") == []
    later.close()


def test_what_was_published_before_there_was_a_table_follows(site: Site) -> None:
    keys = publish_hours(site, range(3))
    site.services.database.execute("DELETE FROM kfm.outbox")  # as if the table had been declared now
    keys += publish_hours(site, [3])
    flush(site)
    flush(site)
    assert_table_is_catalog(site, keys)


def test_a_key_that_is_published_while_it_is_written_stays_in_the_outbox(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    [key] = publish_hours(site, [0])
    written = sink._write

    def overtaken(*arguments: object) -> None:
        monkeypatch.setattr(sink, "_write", written)
        publish_hours(site, [0], version=1)
        written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sink, "_write", overtaken)
    assert sink.write(site.services, site.dataset, [key], "test") == {}
    assert len(site.fetch("SELECT * FROM kfm.outbox")) == 1
    flush(site)
    assert_table_is_catalog(site, [key])


def test_a_key_that_is_not_published_any_more_leaves_the_table(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = publish_hours(site, range(2))
    flush(site)
    monkeypatch.setattr(sink, "current_revisions", lambda connection, keys: {})
    monkeypatch.setattr(sink, "load_facts", load_without_revisions)
    assert sink.write(site.services, site.dataset, [keys[0]], "test") == {}
    assert keys_in(the_table(site)) == {keys[1]: 68}


def load_without_revisions(database: Database, txns: Mapping[str, int]) -> dict[str, KeyFacts]:
    return {key: replace(facts, current=None) for key, facts in load_facts(database, txns).items()}


def test_a_key_whose_objects_are_deleted_has_no_rows(site: Site) -> None:
    put, keys = site.put(0), [site.key(0), site.key(1)]
    site.put(1)
    assert site.work()["published"] == 2
    s3_client().delete_object(Bucket=site.bucket, Key=put.object_key)
    assert site.work()["published"] == 1
    assert keys_in(the_table(site)) == {keys[1]: 68}
    assert differences(site.services, site.dataset, keys) == {}
    assert site.fetch("SELECT * FROM kfm.outbox") == []


@pytest.mark.parametrize("gate", ["schema", "care"])
def test_nothing_without_a_green_verdict_gets_into_the_table(site: Site, gate: str) -> None:
    keys = publish_hours(site, range(2))
    site.services.database.execute("ALTER TABLE kfm.verdicts DISABLE TRIGGER USER")
    site.services.database.execute(
        "DELETE FROM kfm.verdicts WHERE key = %(key)s AND gate = %(gate)s", {"key": keys[0], "gate": gate}
    )
    [problem] = flush_now(site.services, site.dataset, Sink.TABLE)
    assert f"the {gate} gate has given no verdict" in problem
    assert keys_in(the_table(site)) == {keys[1]: 68}
    [waiting] = site.fetch("SELECT key, attempts FROM kfm.outbox")
    assert waiting == {"key": keys[0], "attempts": 1}


def test_what_the_catalog_does_not_show_is_not_written(site: Site) -> None:
    [key] = publish_hours(site, [0])
    item = site.data / Layout(site.dataset.pipeline).item(key)
    item.write_bytes(item.read_bytes().replace(b"green", b"GREEN"))
    [problem] = flush_now(site.services, site.dataset, Sink.TABLE)
    assert "its Item or its data is not what was published" in problem


def test_a_branch_with_other_rows_is_not_published(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the library had changed a value."""
    publish_hours(site, [0])
    flush(site)
    before = the_table(site).current_snapshot()
    publish_hours(site, [0], version=1)
    with monkeypatch.context() as patch:
        patch.setattr(sink, "digest_of_rows", lambda rows, columns: str(id(rows)))
        [problem] = flush_now(site.services, site.dataset, Sink.TABLE)
        assert "other rows than what is published" in problem
    assert the_table(site).current_snapshot() == before
    flush(site)
    assert_table_is_catalog(site, [site.key(0)])


def test_the_digest_of_rows_sees_every_change() -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    rows = pa.table({"site": ["a", "b"], "at": [at, at], "value": [1.0, float("nan")], "shape": [b"1", None]})
    names = rows.column_names
    same = pa.concat_tables([rows.slice(1), rows.slice(0, 1)])
    assert digest_of_rows(same, names) == digest_of_rows(rows, names)
    changed = [
        rows.slice(0, 1),
        pa.concat_tables([rows, rows.slice(1)]),
        rows.set_column(2, "value", pa.array([1.0, None])),
        rows.set_column(0, "site", pa.array(["a", "c"])),
        rows.set_column(3, "shape", pa.array([b"1", b""])),
    ]
    digests = {digest_of_rows(one, names) for one in [*changed, rows]}
    assert len(digests) == len(changed) + 1


def test_an_audit_counts_the_rows(site: Site) -> None:
    [key] = publish_hours(site, [0])
    flush(site)
    facts = sink._current_facts(site.services, [key])
    with pytest.raises(IntegrityBroken, match="68 rows of what has 0"):
        sink.audit(the_table(site), "main", facts, None)


def test_a_mistake_of_the_library_stops_neither_run_nor_tick(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("Mismatch in fields")

    monkeypatch.setattr(sink, "_write", fail)
    site.put(0)
    assert site.work()["published"] == 1
    [waiting] = site.fetch("SELECT problem FROM kfm.outbox")
    assert waiting == {"problem": "Mismatch in fields"}
    monkeypatch.undo()
    flush(site)
    assert_table_is_catalog(site, [site.key(0)])

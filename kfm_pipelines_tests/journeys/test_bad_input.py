"""Bad input of every kind: one clear sentence in the right place, nothing else harmed, nothing lost."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.provision import provision
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.producer.samples.streamflow import streamflow_object, streamflow_table
from kfm_pipelines_tests.fixtures.runs.dispatch import evaluations, parquet
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site

HOUR = START + timedelta(hours=1)


@dataclass(frozen=True)
class Refused:
    """A message that never becomes an event."""

    body: Callable[[Site, Put], str]
    error: str
    triage: str
    says: str


REFUSED = {
    "not JSON": Refused(lambda *_: "{not JSON", "BodyUnreadable", "schema", "message is not JSON"),
    "no event": Refused(lambda *_: '{"hello": "world"}', "ShapeUnknown", "schema", "no known shape"),
    "half an event": Refused(
        lambda *_: '{"Records": [{}]}', "ContractBroken", "schema", "s3-notification-v2: Records[0]"
    ),
    "an undeclared dataset": Refused(
        lambda site, put: site.auto_update_message(put, dataset="usgs/lakes"),
        "DatasetUnknown",
        "schema",
        "dataset 'usgs/lakes' is not declared; declared: drought/tribal-areas, heritage/sites, usgs/",
    ),
    "an undeclared place": Refused(
        lambda site, put: site.s3_message(replace(put, object_key="elsewhere/a.parquet")),
        "LocationUndeclared",
        "permission",
        "/elsewhere/a.parquet' is not under the bucket and prefix of any declared dataset",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_refused_message_is_kept_with_its_reason(site: Site, case: Refused) -> None:
    body = case.body(site, site.put())
    site.send(body)

    assert site.work() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}

    [letter] = _letters(site)
    assert (letter["failure_stage"], letter["error"], letter["triage"]) == ("receive", case.error, case.triage)
    assert (letter["body"], letter["queue"]) == (body, site.services.queue.name)
    assert case.says in letter["reason"]
    _assert_one_sentence(letter["reason"])

    site.send(body)
    assert site.drain().refused == 1
    [again] = _letters(site)
    assert (again["id"], again["attempts"], again["reason"]) == (letter["id"], 2, letter["reason"])


@dataclass(frozen=True)
class Failing:
    """An hour whose events or objects are no good; `spoil` arranges it."""

    spoil: Callable[[Site], object]
    stage: str
    error: str
    triage: str
    says: str


def _red(table: Callable[[], pa.Table], says: str, *, error: str = "GateRefused", triage: str = "schema") -> Failing:
    return Failing(lambda site: site.put(1, parquet(table())), "validate", error, triage, says)


def _unreadable(data: Callable[[], bytes], says: str) -> Failing:
    return Failing(lambda site: site.put(1, data()), "compute", "InputUnreadable", "schema", says)


def _untrue(changes: Callable[[Put], dict[str, Any]], says: str) -> Failing:
    def spoil(site: Site) -> None:
        _silence_the_bucket(site)
        put = site.put(1)
        site.send(site.s3_message(put, **changes(put)))

    return Failing(spoil, "compute", "IntegrityBroken", "integrity", says)


def _announce_what_is_not_there(site: Site) -> None:
    object_key, _ = streamflow_object(HOUR)
    site.send(site.s3_message(Put(object_key, "0" * 32, "null", 10, HOUR)))


def _two_objects_that_do_not_fit(site: Site) -> None:
    site.put(1, parquet(_sample().slice(0, 1)))
    site.put(1, parquet(_with_text_in("discharge_cfs").slice(1, 1)), name="another.parquet")


UNREADABLE = {
    "another size": _untrue(lambda put: {"size": put.size + 1}, "bytes; the event promised"),
    "another ETag": _untrue(lambda _: {"etag": "0" * 32}, f"; the event promised {'0' * 32}"),
    "no object": Failing(
        _announce_what_is_not_there, "compute", "ObjectMissing", "missing-object", "is not there; upload it again"
    ),
    "not Parquet": _unreadable(lambda: b"site_no,discharge_cfs\n", "is not a readable Parquet file"),
    "empty": _unreadable(lambda: b"", "is not a readable Parquet file"),
    "truncated": _unreadable(lambda: parquet(_sample())[:-200], "is not a readable Parquet file"),
    "damaged inside": _unreadable(lambda: _damaged(parquet(_sample())), "is not a readable Parquet file"),
    "a column twice": _unreadable(
        lambda: parquet(_sample().append_column("site_no", _sample().column("site_no"))),
        "the column 'site_no' is in the file more than once",
    ),
    "objects that do not fit": Failing(
        _two_objects_that_do_not_fit, "compute", "InputUnreadable", "schema", "do not form one table"
    ),
}
RED = {
    "a column missing": _red(
        lambda: _sample().drop_columns(["qualifier"]),
        "qualifier: expected a column of type string, found no such column",
    ),
    "a column too many": _red(
        lambda: _sample().append_column("mood", pa.array(["calm"] * _sample().num_rows)),
        "mood: expected only declared columns, found an undeclared column",
    ),
    "a column of another type": _red(
        lambda: _with_text_in("discharge_cfs"), "discharge_cfs: expected double, found string"
    ),
    "nulls": _red(
        lambda: _with_column("qualifier", pa.array([None] + ["P"] * (_sample().num_rows - 1), pa.string())),
        "qualifier: expected no nulls, found 1 of 68 rows",
    ),
    "two readings for one": _red(
        lambda: pa.concat_tables([_sample(), _with_column("qualifier", pa.array(["e"] * 68)).slice(0, 1)]),
        "site_no, observed_at: expected one row each, found 1 rows too many",
        error="QualityRefused",
        triage="quality",
    ),
    "readings of another hour": _red(
        lambda: streamflow_table(HOUR + timedelta(hours=1)),
        "observed_at: expected times from 2025-12-04T01:00Z until before 2025-12-04T02:00Z, found 68 rows outside",
    ),
    "nowhere on earth": _red(
        lambda: _with_column("latitude", pa.array([91.0] * 68)),
        "latitude: expected degrees from -90 to 90, found 68 rows outside",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*UNREADABLE.values(), *RED.values()], ids=[*UNREADABLE, *RED])
def test_a_bad_key_stops_alone_and_can_be_repaired(site: Site, case: Failing) -> None:
    site.put(0)
    site.put(2)
    case.spoil(site)

    assert site.work() == {"keys": 3, "published": 2, "skipped": 0, "failed": 1}

    [letter] = _letters(site)
    assert (letter["key"], letter["dataset"], letter["closed_at"]) == (site.key(1), "usgs/streamflow", None)
    assert (letter["failure_stage"], letter["error"], letter["triage"]) == (case.stage, case.error, case.triage)
    assert case.says in letter["reason"]
    assert site.key(1) in letter["reason"] or f"s3://{site.bucket}/usgs/streamflow/" in letter["reason"]
    _assert_one_sentence(letter["reason"])
    _assert_nothing_is_published_of(site, site.key(1))
    assert site.red(site.key(1)) == (["1/table.parquet"] if case.stage == "validate" else [])
    _assert_the_same_again_changes_nothing(site)
    assert _letters(site) == [letter]

    provision(site.services.settings, site.services.datasets)
    for row in site.fetch(f"SELECT asset_uri FROM kfm.inbox WHERE key = '{site.key(1)}'"):
        site.put(1, name=row["asset_uri"].rsplit("/", 1)[1])

    assert site.work() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}
    [closed] = _letters(site)
    changing = ("state", "closed_at", "changed_at", "filed_at")
    assert closed == {**letter, **{name: closed[name] for name in changing}}
    assert closed["state"] == "closed"
    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "succeeded"}]
    assert (site.tree("work"), site.red(site.key(1))) == ({}, [])


@pytest.mark.slow
def test_a_red_verdict_is_recorded_and_fails_the_check(site: Site) -> None:
    site.put(0)
    RED["nulls"].spoil(site)

    site.work()

    verdicts = site.fetch("SELECT key, gate, passed, findings FROM kfm.verdicts WHERE NOT passed")
    finding = {"rule": "no-nulls", "severity": "error", "subject": "qualifier", "expected": "no nulls"}
    assert [(v["key"], v["gate"]) for v in verdicts] == [(site.key(1), "schema")]
    sample = "site_no=06866500, observed_at=2025-12-04 01:00:00+00:00"
    assert verdicts[0]["findings"] == [{**finding, "measured": "1 of 68 rows", "sample": sample}]
    # The run with the red key, then the one over the green key that was handed back.
    assert [(one.passed, one.description) for one in evaluations("schema")] == [
        (False, "1 of 2 keys are red"),
        (True, "1 key is green"),
    ]


@pytest.mark.slow
def test_a_wrong_declaration_stops_the_worker_before_it_takes_a_message(site: Site) -> None:
    site.put()
    declaration = site.services.settings.resources / "datasets" / "usgs-streamflow.yaml"
    right = declaration.read_text()
    declaration.write_text(right.replace("window: hour", "window: fortnight"))

    with pytest.raises(DeclarationInvalid) as refused:
        site.work()

    assert str(refused.value) == (
        "usgs-streamflow.yaml: key.window: Input should be 'hour', 'day' or 'month', not 'fortnight'"
    )
    assert site.services.queue.depth().waiting == 1
    declaration.write_text(right)
    assert site.work()["published"] == 1


def _letters(site: Site) -> list[dict[str, Any]]:
    return site.fetch("SELECT * FROM kfm.dead_letters ORDER BY id")


def _assert_one_sentence(reason: str) -> None:
    assert len(reason.splitlines()) == 1
    assert len(reason) < 500
    assert "Traceback" not in reason
    assert 'File "' not in reason


def _assert_nothing_is_published_of(site: Site, key: str) -> None:
    assert [path for path in site.tree("catalog", "processed") if key in path] == []
    assert [path for path in (site.data / "catalog").rglob("*.json") if key in path.read_text()] == []
    assert len([path for path in site.tree("objects") if path.endswith(".parquet")]) == 2
    assert site.tree("work") == {}


def _assert_the_same_again_changes_nothing(site: Site) -> None:
    before = site.tree()
    for row in site.fetch(f"SELECT body FROM kfm.inbox WHERE key = '{site.key(1)}'"):
        site.send(row["body"])
    assert site.work() == {"keys": 0, "published": 0, "skipped": 0, "failed": 0}
    assert site.tree() == before


def _silence_the_bucket(site: Site) -> None:
    """No notices from S3 itself, which would be believed before any other."""
    s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})


def _sample() -> pa.Table:
    return streamflow_table(HOUR)


def _with_column(name: str, values: pa.Array) -> pa.Table:
    table = _sample()
    return table.set_column(table.column_names.index(name), name, values)


def _with_text_in(name: str) -> pa.Table:
    return _with_column(name, pc.cast(_sample().column(name), pa.string()))


def _damaged(data: bytes) -> bytes:
    """Footer whole, first page of the data overwritten."""
    return data[:4] + b"\xff" * 64 + data[68:]

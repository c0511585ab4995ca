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

pytestmark = pytest.mark.slow

Letter = dict[str, Any]
IDLE = {"keys": 0, "published": 0, "skipped": 0, "failed": 0}


@dataclass(frozen=True)
class Refused:
    """A message that never becomes an event."""

    body: Callable[[Site, Put], str]
    error: str
    triage: str
    reason: str


REFUSED = (
    Refused(lambda *_: "{not JSON", "BodyUnreadable", "schema", "message is not JSON"),
    Refused(lambda *_: '{"hello": "world"}', "ShapeUnknown", "schema", "no known shape"),
    Refused(lambda *_: '{"Records": [{}]}', "ContractBroken", "schema", "s3-notification-v2: Records[0]"),
    Refused(
        lambda site, put: site.auto_update_message(put, dataset="usgs/lakes"),
        "DatasetUnknown",
        "schema",
        "dataset 'usgs/lakes' is not declared; declared: drought/tribal-areas, ",
    ),
    Refused(
        lambda site, put: site.s3_message(replace(put, object_key="elsewhere/a.parquet")),
        "LocationUndeclared",
        "permission",
        "/elsewhere/a.parquet' is not under the bucket and prefix of any declared dataset",
    ),
)


def test_refused_messages_are_kept_with_their_reason(site: Site) -> None:
    put = site.put()
    bodies = [case.body(site, put) for case in REFUSED]
    site.send_all(bodies)

    assert site.work() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}

    letters = {letter["body"]: letter for letter in _letters(site)}
    assert letters.keys() == set(bodies)
    for body, case in zip(bodies, REFUSED, strict=True):
        letter = letters[body]
        assert (letter["failure_stage"], letter["error"], letter["triage"]) == ("receive", case.error, case.triage)
        assert letter["queue"] == site.services.queue.name
        assert case.reason in letter["reason"]
        _assert_one_sentence(letter["reason"])

    site.send_all(bodies)
    assert site.drain().refused == len(bodies)
    again = {letter["body"]: letter for letter in _letters(site)}
    assert {body: (one["id"], one["attempts"], one["reason"]) for body, one in again.items()} == {
        body: (one["id"], 2, one["reason"]) for body, one in letters.items()
    }


@dataclass(frozen=True)
class Failing:
    """An hour with bad events or objects; `spoil` creates them."""

    spoil: Callable[[Site, int], object]
    stage: str
    error: str
    triage: str
    reason: str


def _announce(site: Site, put: Put, **changes: Any) -> None:
    site.send(site.s3_message(put, **changes))


def _red(
    table: Callable[[int], pa.Table], reason: str, *, error: str = "GateRefused", triage: str = "schema"
) -> Failing:
    def spoil(site: Site, hour: int) -> None:
        _announce(site, site.put(hour, parquet(table(hour))))

    return Failing(spoil, "validate", error, triage, reason)


def _unreadable(data: Callable[[int], bytes], reason: str) -> Failing:
    return Failing(
        lambda site, hour: _announce(site, site.put(hour, data(hour))), "compute", "InputUnreadable", "schema", reason
    )


def _untrue(changes: Callable[[Put], dict[str, Any]], reason: str) -> Failing:
    def spoil(site: Site, hour: int) -> None:
        put = site.put(hour)
        _announce(site, put, **changes(put))

    return Failing(spoil, "compute", "IntegrityBroken", "integrity", reason)


def _announce_a_missing_object(site: Site, hour: int) -> None:
    start = START + timedelta(hours=hour)
    _announce(site, Put(streamflow_object(start)[0], "0" * 32, "null", 10, start))


def _announce_two_objects_that_do_not_fit(site: Site, hour: int) -> None:
    _announce(site, site.put(hour, parquet(_sample(hour).slice(0, 1))))
    _announce(site, site.put(hour, parquet(_with_text_in("discharge_cfs", hour).slice(1, 1)), name="another.parquet"))


UNREADABLE = {
    "another size": _untrue(lambda put: {"size": put.size + 1}, "bytes; the event promised"),
    "another ETag": _untrue(lambda _: {"etag": "0" * 32}, f"; the event promised {'0' * 32}"),
    "no object": Failing(
        _announce_a_missing_object, "compute", "ObjectMissing", "missing-object", "is not there; upload it again"
    ),
    "not Parquet": _unreadable(lambda _: b"site_no,discharge_cfs\n", "is not a readable Parquet file"),
    "empty": _unreadable(lambda _: b"", "is not a readable Parquet file"),
    "truncated": _unreadable(lambda hour: parquet(_sample(hour))[:-200], "is not a readable Parquet file"),
    "damaged inside": _unreadable(lambda hour: _damaged(parquet(_sample(hour))), "is not a readable Parquet file"),
    "a column twice": _unreadable(
        lambda hour: parquet(_sample(hour).append_column("site_no", _sample(hour).column("site_no"))),
        "the column 'site_no' is in the file more than once",
    ),
    "objects that do not fit": Failing(
        _announce_two_objects_that_do_not_fit, "compute", "InputUnreadable", "schema", "do not form one table"
    ),
}
RED = {
    "a column missing": _red(
        lambda hour: _sample(hour).drop_columns(["qualifier"]),
        "qualifier: expected a column of type string, found no such column",
    ),
    "a column too many": _red(
        lambda hour: _sample(hour).append_column("mood", pa.array(["calm"] * _sample(hour).num_rows)),
        "mood: expected only declared columns, found an undeclared column",
    ),
    "a column of another type": _red(
        lambda hour: _with_text_in("discharge_cfs", hour), "discharge_cfs: expected double, found string"
    ),
    "nulls": _red(
        lambda hour: _with_column("qualifier", pa.array([None] + ["P"] * 67, pa.string()), hour),
        "qualifier: expected no nulls, found 1 of 68 rows",
    ),
    "readings of another hour": _red(
        lambda hour: _sample(hour + 1), "observed_at: expected times from {start} until before {end}, found 68 rows"
    ),
    "nowhere on earth": _red(
        lambda hour: _with_column("latitude", pa.array([91.0] * 68), hour),
        "latitude: expected degrees from -90 to 90, found 68 rows outside",
    ),
}
FAILING = UNREADABLE | RED
HOURS = {name: hour for hour, name in enumerate(FAILING, start=1)}
GOOD_HOURS = (0, len(FAILING) + 1)


def test_bad_keys_stop_alone_with_a_clear_reason_and_can_be_repaired(site: Site) -> None:
    # S3's own notices would be believed before any other.
    s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})
    for hour in GOOD_HOURS:
        _announce(site, site.put(hour))
    for name, case in FAILING.items():
        case.spoil(site, HOURS[name])

    assert site.work() == {"keys": len(FAILING) + 2, "published": 2, "skipped": 0, "failed": len(FAILING)}

    letters = {letter["key"]: letter for letter in _letters(site)}
    assert letters.keys() == {site.key(hour) for hour in HOURS.values()}
    for name, case in FAILING.items():
        _assert_letter(site, letters[site.key(HOURS[name])], case, HOURS[name])
    _assert_only_good_hours_are_published(site)

    before = site.tree()
    site.send_all([row["body"] for row in site.fetch("SELECT body FROM kfm.inbox")])
    assert site.work() == IDLE
    assert site.tree() == before
    assert {letter["key"]: letter for letter in _letters(site)} == letters

    provision(site.services.settings, site.services.datasets)
    for hour in HOURS.values():
        for row in site.fetch(f"SELECT DISTINCT asset_uri FROM kfm.inbox WHERE key = '{site.key(hour)}'"):
            site.put(hour, name=row["asset_uri"].rsplit("/", 1)[1])
    assert site.work() == {"keys": len(FAILING), "published": len(FAILING), "skipped": 0, "failed": 0}
    changing = ("state", "closed_at", "changed_at", "filed_at")
    for closed in _letters(site):
        assert closed == {**letters[closed["key"]], **{name: closed[name] for name in changing}}
        assert closed["state"] == "closed"
    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "succeeded"}]
    assert site.tree("work") == {}
    assert [site.red(key) for key in letters] == [[]] * len(letters)


def test_a_red_verdict_is_recorded_and_fails_the_check(site: Site) -> None:
    site.put(0)
    site.put(1, parquet(_with_column("qualifier", pa.array([None] + ["P"] * 67, pa.string()), 1)))

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


def test_a_wrong_declaration_stops_the_worker_before_it_takes_a_message(site: Site) -> None:
    site.put()
    declaration = site.services.settings.resources / "datasets" / "usgs-streamflow.yaml"
    right = declaration.read_text()
    declaration.write_text(right.replace("window: hour", "window: fortnight"))

    with pytest.raises(DeclarationInvalid) as refused:
        site.work()

    assert str(refused.value) == (
        "usgs-streamflow.yaml: key.window: Input should be 'hour', 'day', 'week', 'month' or 'year', not 'fortnight'"
    )
    assert site.services.queue.depth().waiting == 1
    declaration.write_text(right)
    assert site.work()["published"] == 1


def _letters(site: Site) -> list[Letter]:
    return site.fetch("SELECT * FROM kfm.dead_letters ORDER BY id")


def _assert_one_sentence(reason: str) -> None:
    assert len(reason.splitlines()) == 1
    assert len(reason) < 500
    assert "Traceback" not in reason
    assert 'File "' not in reason


def _assert_letter(site: Site, letter: Letter, case: Failing, hour: int) -> None:
    key, start = site.key(hour), START + timedelta(hours=hour)
    assert (letter["dataset"], letter["closed_at"]) == ("usgs/streamflow", None)
    assert (letter["failure_stage"], letter["error"], letter["triage"]) == (case.stage, case.error, case.triage)
    window = {"start": f"{start:%Y-%m-%dT%H:%MZ}", "end": f"{start + timedelta(hours=1):%Y-%m-%dT%H:%MZ}"}
    assert case.reason.format(**window) in letter["reason"]
    assert key in letter["reason"] or f"s3://{site.bucket}/usgs/streamflow/" in letter["reason"]
    _assert_one_sentence(letter["reason"])
    assert site.red(key) == (["1/table.parquet"] if case.stage == "validate" else [])


def _assert_only_good_hours_are_published(site: Site) -> None:
    bad = [site.key(hour) for hour in HOURS.values()]
    assert [path for path in site.tree("catalog", "processed") if any(key in path for key in bad)] == []
    catalog = "".join(path.read_text() for path in (site.data / "catalog").rglob("*.json"))
    assert [key for key in bad if key in catalog] == []
    assert len([path for path in site.tree("objects") if path.endswith(".parquet")]) == len(GOOD_HOURS)
    assert site.tree("work") == {}


def _sample(hour: int) -> pa.Table:
    return streamflow_table(START + timedelta(hours=hour))


def _with_column(name: str, values: pa.Array, hour: int) -> pa.Table:
    table = _sample(hour)
    return table.set_column(table.column_names.index(name), name, values)


def _with_text_in(name: str, hour: int) -> pa.Table:
    return _with_column(name, pc.cast(_sample(hour).column(name), pa.string()), hour)


def _damaged(data: bytes) -> bytes:
    """Footer intact, first page of the data overwritten."""
    return data[:4] + b"\xff" * 64 + data[68:]

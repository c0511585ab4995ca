"""One statewide object is work for several keys, each with the rows of its member, however its notices arrive."""

import io
import json
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any
from uuid import uuid4

import h3
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.queue import Message
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines.inbox.record import record
from kfm_pipelines.inbox.unseen import look_at_input
from kfm_pipelines.operations.replay.register import register_windows
from kfm_pipelines.operations.verify import load_trust_root, verify_key
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.stages.telemetry.tables import rows_before
from kfm_pipelines_tests.fixtures.runs.batches import publish, publish_due, work_in_batches
from kfm_pipelines_tests.fixtures.runs.replay import close_windows, planned, started
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site
from kfm_pipelines_tests.fixtures.stores.s3_faults import Wire

pytestmark = pytest.mark.slow

MENTOR, RILEY, WICHITA = "06866500", "06879100", "07144300"
GAUGES = {MENTOR: "mentor", RILEY: "Fort_Riley", WICHITA: "wichita"}
MEMBERS = ("fort_riley", "mentor", "wichita")


def declare_split(site: Site, split: dict[str, Any] | None = None) -> None:
    """Declares the split, as if the services were started with it."""
    path = site.services.settings.resources / "datasets" / "usgs-streamflow.yaml"
    document = yaml.safe_load(path.read_text())
    document["key"]["split_by"] = split or {"column": "site_no", "members": GAUGES}
    path.write_text(yaml.safe_dump(document))
    site.services.__dict__.pop("datasets", None)


@pytest.fixture
def split_site(site: Site) -> Site:
    declare_split(site)
    return site


def key_of(site: Site, member: str, hour: int = 0) -> str:
    return site.key(hour).replace("kansas_statewide", f"kansas_statewide-{member}")


def readings(*gauges: str, hour: int = 0, seed: int = 0) -> pa.Table:
    table = streamflow_table(START + timedelta(hours=hour), seed=seed)
    return table.filter(pc.is_in(table["site_no"], pa.array(gauges or list(GAUGES))))


def put(site: Site, table: pa.Table, name: str = "state.parquet", hour: int = 0) -> Put:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return site.put(hour, sink.getvalue(), name)


def rows_of(site: Site, member: str, hour: int = 0) -> list[dict[str, Any]]:
    path = site.data / "processed" / "usgs-streamflow" / f"{key_of(site, member, hour)}.parquet"
    found: list[dict[str, Any]] = pq.read_table(path).drop_columns(["geometry"]).to_pylist()
    return found


def revisions(site: Site) -> dict[str, int]:
    rows = site.fetch("SELECT key, max(revision)::int AS n FROM kfm.revisions GROUP BY key ORDER BY key")
    return {row["key"].split(":")[1].removeprefix("kansas_statewide-"): row["n"] for row in rows}


def reasons(site: Site) -> list[str]:
    rows = site.fetch("SELECT detail FROM kfm.wal WHERE outcome = 'SKIPPED' ORDER BY key, id")
    return [row["detail"]["reason"] for row in rows]


def ingest_records(site: Site) -> list[dict[str, Any]]:
    [path] = (site.root / "telemetry").rglob("event-ingest-v1*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_member_is_published_with_its_own_rows_and_the_object_fetched_once(wired: Wire, split_site: Site) -> None:
    site = split_site
    state = readings()
    put(site, state)
    wired.requests.clear()

    publish_due(site)  # without the chores of a tick, which ask S3 as well

    assert wired.requests["GetObject"] == 1
    assert site.fetch("SELECT hits, misses FROM kfm.fetch_totals") == [{"hits": 0, "misses": 1}]
    assert revisions(site) == dict.fromkeys(MEMBERS, 1)
    for gauge, member in GAUGES.items():
        assert rows_of(site, member.lower()) == readings(gauge).sort_by("observed_at").to_pylist()
    trust = load_trust_root(site.services.store, site.services.settings.signing_key, None)
    for member in MEMBERS:
        assert verify_key(site.services.store, trust, key_of(site, member)).failed == ()
        item = json.loads((site.data / f"catalog/usgs-streamflow/items/{key_of(site, member)}.json").read_text())
        assert item["properties"]["title"] == f"USGS streamflow, Kansas, hourly, 2025-12-04T00Z, {member}"
    archived = [path for path in site.tree("ingest") if path.endswith(".json")]
    assert len(archived) == 3  # once for each identity
    assert site.fetch("SELECT recorded, duplicates FROM kfm.queue_totals WHERE received > 0") == [
        {"recorded": 1, "duplicates": 0}
    ]


def test_a_correction_of_one_member_is_a_revision_of_that_member_alone(split_site: Site) -> None:
    site = split_site
    put(site, readings())
    work_in_batches(site)
    corrected = pa.concat_tables([readings(MENTOR, seed=1), readings(RILEY, WICHITA)])
    put(site, corrected)

    assert work_in_batches(site) == {"keys": 3, "published": 1, "skipped": 2, "failed": 0}

    assert revisions(site) == {"fort_riley": 1, "mentor": 2, "wichita": 1}
    assert rows_of(site, "mentor") == readings(MENTOR, seed=1).sort_by("observed_at").to_pylist()
    [riley, wichita] = reasons(site)
    assert riley == "the rows of fort_riley are those of revision 1; only others of its objects changed"
    assert "rows of wichita" in wichita


def test_what_was_compared_once_is_not_fetched_again(wired: Wire, split_site: Site) -> None:
    site = split_site
    put(site, readings())
    work_in_batches(site)
    put(site, pa.concat_tables([readings(MENTOR, seed=1), readings(RILEY, WICHITA)]))
    work_in_batches(site)
    wired.requests.clear()
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")

    publish_due(site)

    assert reasons(site).count("nothing changed since revision 1") == 2
    assert reasons(site).count("nothing changed since revision 2") == 1
    assert wired.requests["GetObject"] == 0


def test_a_deleted_object_leaves_each_member_what_others_have_of_it(split_site: Site) -> None:
    site = split_site
    first = put(site, readings(MENTOR, RILEY))
    put(site, readings(RILEY, WICHITA), "more.parquet")
    work_in_batches(site)
    assert revisions(site) == dict.fromkeys(MEMBERS, 1)

    s3_client().delete_object(Bucket=site.bucket, Key=first.object_key)
    work_in_batches(site)

    assert revisions(site) == {"fort_riley": 1, "mentor": 2, "wichita": 1}
    assert rows_of(site, "mentor") == []
    assert len(rows_of(site, "fort_riley")) == 4


def test_a_member_is_compared_with_its_own_past(split_site: Site) -> None:
    """The state as a whole may have more rows, and another county other ones."""
    site = split_site
    put(site, readings())
    put(site, pa.concat_tables([readings(MENTOR, hour=1)[:2], readings(RILEY, WICHITA, hour=1)]), hour=1)
    work_in_batches(site)
    keys = [key_of(site, member, hour=1) for member in MEMBERS]
    assert rows_before(site.services.database, dict.fromkeys(keys, 1)) == dict.fromkeys(keys, 4)
    later = key_of(site, "mentor", hour=2)
    put(site, readings(hour=2), hour=2)
    work_in_batches(site)
    assert rows_before(site.services.database, {later: 1}) == {later: 2}


def test_a_member_without_rows_is_skipped_until_it_has_some(split_site: Site) -> None:
    site = split_site
    put(site, readings(MENTOR, RILEY))
    assert work_in_batches(site) == {"keys": 3, "published": 2, "skipped": 1, "failed": 0}
    assert reasons(site) == ["its objects have no rows of wichita"]
    put(site, readings(WICHITA), "more.parquet")
    assert work_in_batches(site)["published"] == 1
    assert revisions(site) == dict.fromkeys(MEMBERS, 1)


def test_an_unknown_value_makes_every_key_of_its_object_red_and_no_other(split_site: Site) -> None:
    site = split_site
    put(site, readings(MENTOR, "07183500"))
    put(site, readings(hour=1), hour=1)
    assert work_in_batches(site) == {"keys": 6, "published": 3, "skipped": 0, "failed": 3}
    letters = site.fetch("SELECT key, reason FROM kfm.dead_letters ORDER BY key")
    assert [letter["key"] for letter in letters] == [key_of(site, member) for member in MEMBERS]
    assert "4 rows have site_no that is no member ('07183500')" in letters[0]["reason"]


def test_what_is_ignored_is_counted(split_site: Site) -> None:
    site = split_site
    declare_split(site, {"column": "site_no", "members": GAUGES, "others": "ignore"})
    put(site, readings(MENTOR, "07183500"))
    assert work_in_batches(site)["published"] == 1
    [computed] = site.fetch("SELECT detail FROM kfm.wal WHERE step = 'compute'")
    assert computed["detail"]["left_out"] == {"rows of no member": 4}


def test_a_notice_delivered_again_changes_nothing_and_counts_once(split_site: Site) -> None:
    site = split_site
    message = site.s3_message(put(site, readings()))
    publish_due(site)
    before = site.tree("catalog", "processed", "ingest")
    site.send_all([message, site.wrapped(message)])
    counts = site.drain()
    assert (counts.received, counts.recorded, counts.duplicates, counts.refused) == (2, 0, 2, 0)
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL") == []
    assert site.tree("catalog", "processed", "ingest") == before
    received = [line for line in ingest_records(site) if not line["dedup_hit"]]
    assert len({line["event_id"] for line in received}) == len(received) == 1


def test_any_order_of_notices_ends_in_the_same_rows(split_site: Site) -> None:
    """Each order for its own hour: a first object, its correction, and one more."""
    site = split_site
    orders = list(permutations(range(3)))
    messages = [_three_messages(site, hour) for hour in range(len(orders))]
    for step in range(3):
        for hour, order in enumerate(orders):
            body = messages[hour][order[step]]
            delivery = read_message(Message(body=body, receipt="", message_id=""), site.services.datasets)
            for _ in range(2):
                record(site.services.database, "by hand", [delivery], site.services.datasets)
        if step != 1:  # some are published half-way
            _publish(site)
    for hour in range(len(orders)):
        assert rows_of(site, "mentor", hour) == readings(MENTOR, hour=hour, seed=1).sort_by("observed_at").to_pylist()
        assert rows_of(site, "fort_riley", hour) == readings(RILEY, hour=hour).sort_by("observed_at").to_pylist()
        assert rows_of(site, "wichita", hour) == readings(WICHITA, hour=hour).sort_by("observed_at").to_pylist()


def test_a_key_that_a_correction_left_alone_is_reproduced_from_its_own_version(split_site: Site) -> None:
    site = split_site
    put(site, readings())
    work_in_batches(site)
    put(site, pa.concat_tables([readings(MENTOR, seed=1), readings(RILEY, WICHITA)]))
    work_in_batches(site)
    close_windows(site)
    before = site.tree("catalog", "processed", "objects")

    plan = planned(site, 1, "reproduce")
    assert [one.key for one in plan.chosen] == [key_of(site, member) for member in MEMBERS]
    started(site, plan.id)

    assert reasons(site)[-1] == "reproduced byte for byte"
    ends = site.fetch("SELECT DISTINCT ON (key) outcome, detail FROM kfm.wal ORDER BY key, id DESC")
    assert [end["detail"]["reason"] for end in ends] == ["reproduced byte for byte"] * 3
    assert site.tree("catalog", "processed", "objects") == before


def test_the_history_of_a_bucket_is_registered_for_every_member(split_site: Site) -> None:
    site = split_site
    put(site, readings())
    found = register_windows(site.services, site.dataset, START, START + timedelta(hours=5), "ana")
    assert (found.objects, found.events, found.new_keys) == (1, 1, 3)
    assert list(found.keys) == [key_of(site, member) for member in MEMBERS]
    later = datetime.now(UTC) + timedelta(hours=1)
    state = look_at_input(site.services, site.dataset, later)
    assert (state.matching, state.unmatched, state.unseen) == (1, 0, 0)
    put(site, readings(), "unseen.parquet")
    assert look_at_input(site.services, site.dataset, later).unseen == 1
    site.drain()  # S3's own notices of both objects
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox") == [{"n": 6}]


def test_places_are_split_by_the_cells_that_cover_the_area(site: Site) -> None:
    declare_split(site, {"h3_res": 1})
    state = streamflow_table(START)
    put(site, state)
    result = work_in_batches(site)
    assert result["keys"] == len(site.services.datasets.members_of("usgs/streamflow")) > result["published"] > 1
    assert result["failed"] == 0
    cells = [h3.latlng_to_cell(row["latitude"], row["longitude"], 1) for row in state.to_pylist()]
    assert revisions(site) == dict.fromkeys(sorted(set(cells)), 1)
    for cell in set(cells):
        assert len(rows_of(site, cell)) == cells.count(cell)


def _three_messages(site: Site, hour: int) -> list[str]:
    first = put(site, readings(MENTOR, RILEY, hour=hour), hour=hour)
    second = put(site, pa.concat_tables([readings(MENTOR, hour=hour, seed=1), readings(RILEY, hour=hour)]), hour=hour)
    third = put(site, readings(WICHITA, hour=hour), "more.parquet", hour)
    return [
        site.s3_message(one, sequencer=f"{number:018X}", event_time=START + timedelta(hours=hour, seconds=number))
        for number, one in enumerate((first, second, third))
    ]


def _publish(site: Site) -> None:
    """Publishes what is due, without S3's own notices, which are in the order of writing."""
    rows = site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL ORDER BY key")
    publish(site.services, site.dataset, [row["key"] for row in rows], f"run-{uuid4()}")

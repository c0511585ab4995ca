"""`kfm late` and `kfm watermark`, and where else late events are reported."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kfm_pipelines.definitions import CHORES
from kfm_pipelines.dispatch.sensor import tick
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.watermarks.jobs import late_lane_job
from kfm_pipelines_tests.fixtures.runs.replay import declare
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm_in_process
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site

DROUGHT, HERITAGE = "drought/tribal-areas", "heritage/sites"


def message(site: Site, object_key: str, made: datetime) -> str:
    return site.s3_message(Put(object_key, "0" * 32, "null", 10, made), event_time=made)


def drought(day: datetime) -> str:
    return f"drought/tribal-areas/{day:%Y/%m/%d}/USDM_{day:%Y-%m-%d}.parquet"


def held(site: Site) -> list[dict[str, Any]]:
    return site.fetch("SELECT identity, key, state, changed_by FROM kfm.late ORDER BY key")


@pytest.mark.slow
def test_late_events_are_listed_and_released(site: Site) -> None:
    def run(*arguments: str) -> CommandResult:
        return kfm_in_process(site.environment, *arguments)

    week = timedelta(days=7)
    site.send_all(
        [
            *(message(site, drought(START + number * week), START + number * week) for number in range(6)),
            message(site, drought(START - week), START + 6 * week),  # long after
            message(site, "heritage/sites/2026/06/register-01.parquet", START + 26 * week),
            message(site, "heritage/sites/2025/11/register-01.parquet", START + 27 * week),
        ]
    )
    site.drain()
    late_week, late_month = held(site)

    status = run("watermark", "show", DROUGHT, "--json").json["datasets"][DROUGHT]
    assert datetime.fromisoformat(status["watermark"]) == START + 3 * week
    assert [one["state"] for one in status["partitions"]] == ["idle"]
    assert "  watermark  2025-12-25 00:00:00Z, " in run("watermark", "show").out

    listed = run("late", "list", "--json").json
    assert (listed["total"], {one["rule"] for one in listed["events"]}) == (2, {"replay", "quarantine"})
    listing = run("late", "list", "--dataset", HERITAGE).out
    assert late_month["identity"][:16] in listing
    assert "1 held late event" in listing
    assert f"late       1 held; kfm late list --dataset {HERITAGE}" in run("status").out

    assert "give a --reason" in run("late", "release", "--all").err
    unknown = run("late", "release", "--identity", "f" * 64, "--reason", "x")
    assert (unknown.code, unknown.err.count("\n")) == (1, 1)
    assert "no late event has this identity" in unknown.err
    elsewhere = run("late", "release", "--identity", late_month["identity"], "--dataset", DROUGHT, "--reason", "x")
    assert f"is held, but belongs to dataset {HERITAGE} and key {late_month['key']}" in elsewhere.err
    no_key = run("late", "release", "--key", "no-such-key", "--reason", "x")
    assert (no_key.code, no_key.err) == (1, "kfm: no-such-key: no event has named this key; see kfm late list\n")
    dry = run("late", "release", "--all", "--dry-run")
    assert "2 events to release, 2 keys due" in dry.out
    assert {row["state"] for row in held(site)} == {"held"}

    with open_instance() as instance:
        result = late_lane_job.execute_in_process(instance=instance, resources={"services": ServicesResource()})
    assert result.success
    assert [row["state"] for row in held(site)] == ["released", "held"]

    digits = late_month["identity"][:12]
    done = run("late", "release", "--identity", digits, "--by", "ada", "--reason", "the board asked")
    assert done.out == "1 event released, 1 key due\n"
    again = run("late", "release", "--identity", digits, "--by", "ada", "--reason", "once more")
    assert again.err.startswith(f"kfm: {digits}: is not held; it is released by ada (key ")
    assert [row["changed_by"] for row in held(site)] == ["kfm_late_lane", "ada"]
    audited = site.fetch("SELECT actor, key, detail ->> 'reason' AS why FROM kfm.audit WHERE action = 'late-released'")
    assert [(row["actor"], row["key"]) for row in audited] == [
        ("kfm_late_lane", late_week["key"]),
        ("ada", late_month["key"]),
    ]
    assert "late-released" in run("status", late_month["key"]).out


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["late", "release", "--reason", "x"], "choose events with --dataset, --key or --identity, or use --all"),
        (["late", "release", "--all", "--dataset", "a/b", "--reason", "x"], "choose events with --dataset"),
        (["late", "release", "--all", "--reason", " "], "it is empty"),
        (["late", "release", "--identity", "xyz", "--reason", "x"], "64 hexadecimal digits"),
        (["late", "list", "--state", "lost"], "'lost' is not one of"),
    ],
)
def test_contradictory_options_are_refused_before_services_are_opened(arguments: list[str], answer: str) -> None:
    result = kfm_in_process({}, *arguments)
    assert result.code == 2
    assert answer in result.err


def test_a_tick_reports_watermarks_and_held_events(site: Site) -> None:
    week = timedelta(days=7)
    site.send_all([message(site, drought(START + number * week), START + number * week) for number in (0, 5)])
    site.send(message(site, drought(START - week), START + 6 * week))
    site.drain()
    site.services.database.execute("UPDATE kfm.keys SET due_at = NULL")
    with open_instance() as instance:
        result = tick(instance, site.services, CHORES).skip_reason
    assert result
    assert f"; {DROUGHT} complete until 2025-12-25T00:00Z, 1 late held; no key is due" in str(result.skip_message)


def test_a_release_names_the_keys_that_cannot_take_it(site: Site) -> None:
    """Their version is no longer declared, and no other key takes their inputs."""

    def hour(about: int, made: int) -> str:
        path = streamflow_object(START + timedelta(hours=about))[0]
        return message(site, path, START + timedelta(hours=made))

    declare(site, late="quarantine", watermark={"out_of_order": "1 h"})
    site.send_all([hour(9, 9), hour(0, 10), hour(1, 10)])
    site.drain()
    declare(site, key={"transform_version": "v9-0-0"})
    site.services.database.execute(
        """
        INSERT INTO kfm.keys (key, dataset, window_start, window_end, inputs_from)
        SELECT replace(key, 'v1-0-0', 'v9-0-0'), dataset, window_start, window_end, key
        FROM kfm.keys WHERE key = %(key)s
        """,
        {"key": site.key(0)},
    )
    result = kfm_in_process(site.environment, "late", "release", "--all", "--by", "ada", "--reason", "ok")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0] == "2 events released, 2 keys due"
    assert lines[1].startswith("1 key cannot take these events because the version is no longer declared")
    assert "kfm replay plan --mode upgrade" in result.out
    assert lines[-1] == f"  {site.key(1)}"
    assert [row["state"] for row in held(site)] == ["released", "released"]

"""`kfm late` and `kfm watermark` as an operator types them, and where else it can be read what is late."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from kfm_pipelines.cli.main import kfm as commands
from kfm_pipelines.definitions import CHORES
from kfm_pipelines.dispatch.sensor import tick
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.watermarks.jobs import late_lane_job
from kfm_pipelines_tests.fixtures.runs.replay import declare
from kfm_pipelines_tests.fixtures.sites.command import Said, kfm
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site

DROUGHT, HERITAGE = "drought/tribal-areas", "heritage/sites"


def message(site: Site, object_key: str, made: datetime) -> str:
    return site.s3_message(Put(object_key, "0" * 32, "null", 10, made), event_time=made)


def drought(day: datetime) -> str:
    return f"drought/tribal-areas/{day:%Y/%m/%d}/USDM_{day:%Y-%m-%d}.parquet"


def held(site: Site) -> list[dict[str, Any]]:
    return site.fetch("SELECT identity, key, state, changed_by FROM kfm.late ORDER BY key")


@pytest.mark.slow
def test_from_late_to_released(site: Site) -> None:
    def say(*arguments: str) -> Said:
        return kfm(site.environment, *arguments)

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

    shown = say("watermark", "show", DROUGHT, "--json").json["datasets"][DROUGHT]
    assert datetime.fromisoformat(shown["watermark"]) == START + 3 * week
    assert [one["state"] for one in shown["partitions"]] == ["idle"]
    assert "  watermark  2025-12-25 00:00:00Z, " in say("watermark", "show").out

    listed = say("late", "list", "--json").json
    assert (listed["total"], {one["rule"] for one in listed["events"]}) == (2, {"replay", "quarantine"})
    listing = say("late", "list", "--dataset", HERITAGE).out
    assert late_month["identity"][:16] in listing
    assert "1 events are late and held" in listing
    assert f"late       1 held; kfm late list --dataset {HERITAGE}" in say("status").out

    assert "say why with --reason" in say("late", "release", "--all").err
    unknown = say("late", "release", "--identity", "f" * 64, "--reason", "x")
    assert (unknown.code, unknown.err.count("\n")) == (1, 1)
    assert "no late event has this identity" in unknown.err
    elsewhere = say("late", "release", "--identity", late_month["identity"], "--dataset", DROUGHT, "--reason", "x")
    assert f"is held, but of dataset {HERITAGE} and key {late_month['key']}: not what was chosen" in elsewhere.err
    no_key = say("late", "release", "--key", "no-such-key", "--reason", "x")
    assert (no_key.code, no_key.err) == (1, "kfm: no-such-key: no event has named this key; see kfm late list\n")
    dry = say("late", "release", "--all", "--dry-run")
    assert "2 events would be released, 2 keys would be due by that" in dry.out
    assert {row["state"] for row in held(site)} == {"held"}

    with open_instance() as instance:
        result = late_lane_job.execute_in_process(instance=instance, resources={"services": ServicesResource()})
    assert result.success
    assert [row["state"] for row in held(site)] == ["released", "held"]

    digits = late_month["identity"][:12]
    done = say("late", "release", "--identity", digits, "--by", "ada", "--reason", "the board asked")
    assert done.out == "1 events are released, 1 keys are due by that\n"
    again = say("late", "release", "--identity", digits, "--by", "ada", "--reason", "once more")
    assert again.err.startswith(f"kfm: {digits}: is not held; it is released by ada (key ")
    assert [row["changed_by"] for row in held(site)] == ["kfm_late_lane", "ada"]
    audited = site.fetch("SELECT actor, key, detail ->> 'reason' AS why FROM kfm.audit WHERE action = 'late-released'")
    assert [(row["actor"], row["key"]) for row in audited] == [
        ("kfm_late_lane", late_week["key"]),
        ("ada", late_month["key"]),
    ]
    assert "late-released" in say("status", late_month["key"]).out


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["late", "release", "--reason", "x"], "choose with --dataset, --key or --identity, or say --all"),
        (["late", "release", "--all", "--dataset", "a/b", "--reason", "x"], "choose with --dataset"),
        (["late", "release", "--all", "--reason", " "], "it is empty"),
        (["late", "release", "--identity", "xyz", "--reason", "x"], "64 hexadecimal digits"),
        (["late", "list", "--state", "lost"], "'lost' is not one of"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused_before_anything_is_opened(arguments: list[str], answer: str) -> None:
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 2
    assert answer in result.output


def test_a_tick_says_how_far_datasets_are_and_what_is_held(site: Site) -> None:
    week = timedelta(days=7)
    site.send_all([message(site, drought(START + number * week), START + number * week) for number in (0, 5)])
    site.send(message(site, drought(START - week), START + 6 * week))
    site.drain()
    site.services.database.execute("UPDATE kfm.keys SET due_at = NULL")
    with open_instance() as instance:
        said = tick(instance, site.services, CHORES).skip_reason
    assert said
    assert f"; {DROUGHT} complete until 2025-12-25T00:00Z, 1 late held; no key is due" in str(said.skip_message)


def test_a_release_says_which_keys_cannot_take_it(site: Site) -> None:
    """Of a version that is not declared any more, and that no other has taken the place of."""

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
    said = CliRunner().invoke(commands, ["late", "release", "--all", "--by", "ada", "--reason", "ok"])
    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    assert lines[0] == "2 events are released, 2 keys are due by that"
    assert lines[1].startswith("1 of these keys cannot take them, because their version is not declared any more")
    assert "kfm replay plan --mode upgrade" in said.output
    assert lines[-1] == f"  {site.key(1)}"
    assert [row["state"] for row in held(site)] == ["released", "released"]

"""What the tests of this folder start from: a site with published hours whose windows are closed, and plans of them."""

import json
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import yaml

from kfm_pipelines.operations.replays import commands
from kfm_pipelines.operations.replays.choosing import Where
from kfm_pipelines.operations.replays.planning import Plan, Wish, make_plan
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.orchestration.build import build_definitions
from kfm_pipelines.orchestration.instance import opened_instance
from kfm_pipelines.orchestration.replaying import InThisProcess, carry_out_here
from kfm_pipelines.orchestration.workshop_resource import workshop_of_process
from kfm_pipelines.settings import load_settings
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import Mode, Replay, Terms
from kfm_pipelines_tests.candidates import declaration_path
from kfm_pipelines_tests.replays import close_until
from kfm_pipelines_tests.site import START, Site

DATASET = "usgs/streamflow"
PUBLISHED = ("catalog", "objects", "processed")


def close_windows(site: Site, until: datetime = START + timedelta(days=30)) -> None:
    """The watermark is there."""
    close_until(site.workshop, DATASET, until)


def published_hours(site: Site, hours: int) -> list[str]:
    for hour in range(hours):
        site.put(hour)
    assert site.work()["published"] == hours
    close_windows(site)
    return [site.key(hour) for hour in range(hours)]


def wish(hours: int, mode: Mode = "reproduce", *where: str, **fields: Any) -> Wish:
    return Wish(DATASET, START, START + timedelta(hours=hours), mode, Where.parse(where), **fields)


def planned(site: Site, hours: int, mode: Mode = "reproduce", *where: str, **fields: Any) -> Plan:
    return make_plan(site.workshop, wish(hours, mode, *where, **fields), "ana")


def carried_out(site: Site, replay: str, **terms: Any) -> Replay:
    """Started and carried out in this process."""
    commands.start(site.workshop, replay, Terms(here=True, **terms), "ana")
    return carried_on(site, replay)


def begun_untried(site: Site, replay: str, *, here: bool = True, **terms: Any) -> None:
    """As if its first keys had been good."""
    move = partial(replays.move, site.workshop.database, replay, "started", "ana")
    assert move(to="running", only_from=["planned"], terms=Terms(here=here, **terms))


def carried_on(site: Site, replay: str) -> Replay:
    with opened_instance() as instance:
        definitions = build_definitions(site.workshop.settings.resources)
        return carry_out_here(site.workshop, replay, InThisProcess(instance, site.workshop, definitions)).replay


def declare(site: Site, **changes: Any) -> None:
    """Change the site's declaration, as a process that starts now reads it."""
    path = declaration_path(site)
    document = yaml.safe_load(path.read_text())
    for name, value in changes.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) and name in document else value
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    read_again(site)


def read_again(site: Site) -> None:
    workshop_of_process.cache_clear()
    fresh = Workshop(load_settings())
    site.workshop.__dict__.pop("datasets", None)
    for name in ("_policies", "_suites"):
        getattr(site.workshop, name).clear()
        getattr(fresh, name).clear()


def outcomes(site: Site, replay: str) -> dict[str, list[str]]:
    """By the log: every outcome that each key has had in this replay."""
    rows = site.workshop.database.fetch(
        """
        SELECT b.key, array_agg(o.outcome ORDER BY o.id) AS outcomes
        FROM kfm.wal b JOIN kfm.wal o ON o.key = b.key AND o.txn = b.txn AND o.outcome IS NOT NULL
        WHERE b.step = 'begin' AND b.detail ->> 'replay' = %(replay)s GROUP BY b.key ORDER BY b.key
        """,
        {"replay": replay},
    )
    return {row["key"]: row["outcomes"] for row in rows}


def key_states(site: Site, replay: str) -> dict[str, str]:
    rows = site.workshop.database.fetch(
        "SELECT key, state FROM kfm.replay_keys WHERE replay = %(replay)s ORDER BY place", {"replay": replay}
    )
    return {row["key"]: row["state"] for row in rows}


def moves(site: Site, replay: str) -> list[tuple[str, str]]:
    rows = site.workshop.database.fetch(
        "SELECT what, actor FROM kfm.replay_moves WHERE replay = %(replay)s ORDER BY id", {"replay": replay}
    )
    return [(row["what"], row["actor"]) for row in rows]


def records(site: Site, replay: str) -> list[dict[str, object]]:
    text = (site.data / f"telemetry/replays/{replay}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]

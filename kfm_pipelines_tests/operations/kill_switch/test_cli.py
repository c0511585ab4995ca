"""`kfm kill` and `kfm unkill` as an operator types them, and where else a killed dataset is displayed."""

import getpass

import pytest

from kfm_pipelines.operations.doctor import diagnose
from kfm_pipelines.operations.status.tables import datasets_overview
from kfm_pipelines.state import kill_switch
from kfm_pipelines_tests.fixtures.runs.dispatch import make_due
from kfm_pipelines_tests.fixtures.runs.keys import kill_moves
from kfm_pipelines_tests.fixtures.sites.command import run_kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

DATASET = "usgs/streamflow"


def moves(site: Site) -> list[tuple[bool, str, str]]:
    return kill_moves(site.services.database)


@pytest.mark.slow
def test_from_kill_to_unkill(site: Site) -> None:
    [key] = make_due(site, 0)
    killed = run_kfm("kill", DATASET, "--reason", "wrong\x1b[2J\ndatum " + "x" * 600)
    assert (killed.code, killed.err) == (0, "")
    assert killed.out == ("usgs/streamflow is killed: nothing of it is published until `kfm unkill`; keys waiting: 1\n")
    [(_, actor, reason)] = moves(site)
    assert actor == getpass.getuser()
    assert reason.startswith("wrong [2J datum x")
    assert len(reason) == 500
    assert reason.endswith("…")

    again = run_kfm("kill", DATASET, "--reason", "wrong datum", "--by", "ada", "--json")
    assert again.json == {"dataset": DATASET, "killed": True, "keys_waiting": 1}
    worked = run_kfm("work", "--once", "--json").json
    assert (worked["keys"], worked["runs"], worked["killed"]) == (0, 0, {DATASET: 1})

    whole = run_kfm("status").out
    assert "KILLED     since" in whole
    assert "by ada: wrong datum; kfm unkill usgs/streamflow" in whole
    status = run_kfm("status", key)
    assert "KILLED, nothing of usgs/streamflow is published: since" in status.out
    overview = datasets_overview(site.services.database)[DATASET]["killed"]
    assert (overview["actor"], overview["reason"]) == ("ada", "wrong datum")
    [finding] = [one for one in diagnose(site.services) if one.check == f"kill switch of {DATASET}"]
    assert finding.ok
    assert finding.found.endswith("by ada: wrong datum; 1 keys wait")

    released = run_kfm("unkill", DATASET, "--reason", "corrected", "--by", "ada")
    assert released.out == "usgs/streamflow continues; keys due for the next run or `kfm work --once`: 1\n"
    twice = run_kfm("unkill", DATASET, "--reason", "corrected", "--by", "ada")
    assert (twice.code, twice.out) == (0, "usgs/streamflow was not killed; nothing has changed\n")
    assert moves(site)[1:] == [(True, "ada", "wrong datum"), (False, "ada", "corrected")]


@pytest.mark.slow
def test_a_mistake_stops_nothing_and_is_one_sentence(site: Site) -> None:
    unknown = run_kfm("kill", "usgs/streamflows", "--reason", "wrong datum")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith("kfm: dataset 'usgs/streamflows' is not declared and has no keys; declared: ")
    unexplained = run_kfm("kill", DATASET, "--reason", " ")
    assert (unexplained.code, "it is empty" in unexplained.err) == (2, True)
    assert kill_switch.killed_datasets(site.services.database) == {}


def test_a_dataset_can_be_killed_while_its_declaration_is_broken(site: Site) -> None:
    make_due(site, 0)
    declaration = site.services.settings.resources / "datasets/usgs-streamflow.yaml"
    declaration.write_text("dataset: [")

    assert run_kfm("kill", DATASET, "--reason", "wrong datum", "--json").json["killed"]
    assert DATASET in kill_switch.killed_datasets(site.services.database)

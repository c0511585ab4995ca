"""`kfm datasets canary` and `kfm datasets promote` at a terminal."""

import pytest

from kfm_pipelines.operations.canary.evaluate import CanaryRun
from kfm_pipelines_tests.fixtures.runs.candidates import CANARY, candidate_file, declaration_path, try_candidate
from kfm_pipelines_tests.fixtures.runs.replay import published_hours
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, run_kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

STREAMFLOW = "usgs/streamflow"


def datasets(*arguments: str) -> CommandResult:
    return run_kfm("datasets", *arguments)


@pytest.mark.slow
def test_from_the_first_comparison_to_the_promotion(site: Site) -> None:
    keys = published_hours(site, 2)
    answer = datasets("canary", STREAMFLOW)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == f"kfm: {STREAMFLOW} names no candidate; a `canary` section in its declaration does\n"

    dataset = try_candidate(site)
    CanaryRun(site.services, dataset, "a run").compare(keys[:1])
    answer = datasets("canary", STREAMFLOW)
    assert answer.code == 0
    assert f"{STREAMFLOW}: v1-0-0 → v1-1-0\n  compared   1 keys of 2 needed, 1 good\n" in answer.out
    answer = datasets("promote", STREAMFLOW, "--reason", "too early")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == f"kfm: {STREAMFLOW}@v1-1-0: 1 keys were compared with this candidate; 2 are needed\n"

    CanaryRun(site.services, dataset, "a run").compare(keys)
    report = datasets("canary", STREAMFLOW, "--json").json
    assert (report["compared"], report["good"], report["may_be_promoted"]) == (2, 2, True)
    assert [(one["key"], one["good"], one["faults"]) for one in report["keys"]] == [(key, True, []) for key in keys]

    before = declaration_path(site).read_text()
    answer = datasets("promote", STREAMFLOW, "--reason", "it is right", "--dry-run")
    assert answer.out.endswith("Nothing was done.\n")
    assert declaration_path(site).read_text() == before
    assert site.fetch("SELECT * FROM kfm.promotions") == []

    text = candidate_file(site).read_text()
    answer = datasets("promote", STREAMFLOW, "--reason", "it is right", "--by", "ana")
    assert answer.code == 0, answer.err
    assert answer.out == (
        f"{STREAMFLOW}: v1-0-0 → v1-1-0, datasets/usgs-streamflow.yaml from candidates/usgs-streamflow@v1-1-0.yaml\n"
        "Commit both files where they are reviewed, and reload the code location in Dagster: until then it runs v1-0-0."
        "\n"
    )
    assert declaration_path(site).read_text() == text
    assert not candidate_file(site).exists()
    assert site.fetch("SELECT actor, reason FROM kfm.promotions") == [{"actor": "ana", "reason": "it is right"}]
    answer = datasets("promote", STREAMFLOW, "--reason", "again")
    assert (answer.code, answer.err[:33]) == (1, "kfm: usgs/streamflow names no can")


@pytest.mark.slow
def test_bad_keys_are_named(site: Site) -> None:
    keys = published_hours(site, 1)
    dataset = try_candidate(site, {**CANARY, "keys": 1, "tolerance": {"columns": "identical"}})
    CanaryRun(site.services, dataset, "a run").compare(keys)
    answer = datasets("canary", STREAMFLOW)
    assert f"not good   {keys[0]}: column discharge_m3s is added\n" in answer.out

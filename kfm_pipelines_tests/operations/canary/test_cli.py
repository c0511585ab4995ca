"""`kfm datasets canary` and `kfm datasets promote`, as somebody at a terminal meets them."""

import pytest

from kfm_pipelines.operations.canary.evaluate import CanaryRun
from kfm_pipelines_tests.fixtures.runs.candidates import CANARY, candidate_file, declaration_path, try_candidate
from kfm_pipelines_tests.fixtures.sites.command import Said, kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

STREAMFLOW = "usgs/streamflow"


def datasets(site: Site, *arguments: str) -> Said:
    return kfm(site.environment, "datasets", *arguments)


def published(site: Site, hours: int) -> list[str]:
    for hour in range(hours):
        site.put(hour)
    assert site.work()["published"] == hours
    return [site.key(hour) for hour in range(hours)]


@pytest.mark.slow
def test_from_the_first_comparison_to_the_promotion(site: Site) -> None:
    keys = published(site, 2)
    said = datasets(site, "canary", STREAMFLOW)
    assert (said.code, said.out) == (1, "")
    assert said.err == f"kfm: {STREAMFLOW} names no candidate; a `canary` section in its declaration does\n"

    dataset = try_candidate(site)
    CanaryRun(site.services, dataset, "a run").compare(keys[:1])
    said = datasets(site, "canary", STREAMFLOW)
    assert said.code == 0
    assert f"{STREAMFLOW}: v1-0-0 → v1-1-0\n  compared   1 keys of 2 needed, 1 good\n" in said.out
    said = datasets(site, "promote", STREAMFLOW, "--reason", "too early")
    assert (said.code, said.out) == (1, "")
    assert said.err == f"kfm: {STREAMFLOW}@v1-1-0: 1 keys were compared with this candidate; 2 are needed\n"

    CanaryRun(site.services, dataset, "a run").compare(keys)
    report = datasets(site, "canary", STREAMFLOW, "--json").json
    assert (report["compared"], report["good"], report["may_be_promoted"]) == (2, 2, True)
    assert [(one["key"], one["good"], one["faults"]) for one in report["keys"]] == [(key, True, []) for key in keys]

    before = declaration_path(site).read_text()
    said = datasets(site, "promote", STREAMFLOW, "--reason", "it is right", "--dry-run")
    assert said.out.endswith("Nothing was done.\n")
    assert declaration_path(site).read_text() == before
    assert site.fetch("SELECT * FROM kfm.promotions") == []

    text = candidate_file(site).read_text()
    said = datasets(site, "promote", STREAMFLOW, "--reason", "it is right", "--by", "ana")
    assert said.code == 0, said.err
    assert said.out == (
        f"{STREAMFLOW}: v1-0-0 → v1-1-0, datasets/usgs-streamflow.yaml from candidates/usgs-streamflow@v1-1-0.yaml\n"
        "Commit both files where they are reviewed, and reload the code location in Dagster: until then it runs v1-0-0."
        "\n"
    )
    assert declaration_path(site).read_text() == text
    assert not candidate_file(site).exists()
    assert site.fetch("SELECT actor, reason FROM kfm.promotions") == [{"actor": "ana", "reason": "it is right"}]
    said = datasets(site, "promote", STREAMFLOW, "--reason", "again")
    assert (said.code, said.err[:33]) == (1, "kfm: usgs/streamflow names no can")


@pytest.mark.slow
def test_what_is_not_good_is_named(site: Site) -> None:
    keys = published(site, 1)
    dataset = try_candidate(site, {**CANARY, "keys": 1, "tolerance": {"columns": "identical"}})
    CanaryRun(site.services, dataset, "a run").compare(keys)
    said = datasets(site, "canary", STREAMFLOW)
    assert f"not good   {keys[0]}: column discharge_m3s is added\n" in said.out

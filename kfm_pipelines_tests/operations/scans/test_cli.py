"""`kfm qa` as an operator types it."""

import json

import pytest

from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.published_site import paths_of, replaced
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow


def test_scanning_and_looking_at_what_was_found(site: Site) -> None:
    for hour in range(2):
        site.put(hour)
    site.work()
    key = site.key(1)

    said = kfm(site.environment, "qa", "scan")
    assert said.code == 0
    assert said.err.endswith("usgs/streamflow: keys looked at: 2 of 2\n")
    assert "usgs/streamflow: 0 errors and 0 warnings in 2 keys\n" in said.out
    assert "heritage/sites: 0 errors and 0 warnings in 0 keys\n" in said.out
    assert kfm(site.environment, "qa", "findings").out == "0 findings\n"

    with replaced(paths_of(site, key)["processed"], None):
        wrong = kfm(site.environment, "qa", "scan", "usgs/streamflow", "--full", "--keys", "5", "--json")
        assert (wrong.code, wrong.err) == (1, "")
        document = json.loads(wrong.out)
        [dataset] = document["datasets"]
        assert (dataset["keys"], dataset["errors"], dataset["left"]) == (2, 1, 0)
        [finding] = dataset["findings"]
        assert (finding["key"], finding["rule"], finding["measured"]) == (key, "published-digest", "nothing")
        assert finding["fix"].startswith("Put the file back from a copy")
        shown = kfm(site.environment, "qa", "scan", "usgs/streamflow")
        assert shown.code == 1
        assert f"processed/usgs-streamflow/{key}.parquet" in shown.out
        assert "\n    Put the file back from a copy" in shown.out

    found = kfm(site.environment, "qa", "findings", "usgs/streamflow", "--run", document["run"], "--json").json
    assert [(one["key"], one["gate"]) for one in found["findings"]] == [(key, "published")]
    assert found["findings"][0]["fix"] == finding["fix"]
    listed = kfm(site.environment, "qa", "findings", "--key", key, "--severity", "error").out
    assert key in listed
    assert f"\n    {finding['fix']}\n" in listed
    assert kfm(site.environment, "qa", "findings", "--severity", "warn").out == "0 findings\n"

    deep = kfm(site.environment, "qa", "scan", "usgs/streamflow", "--deep")
    assert deep.code == 0
    assert deep.err.startswith("usgs/streamflow: keys read: 1")
    assert f"Data Docs: {site.services.store.url}/reports/data-docs/usgs-streamflow/index.html" in deep.out


def test_mistakes_are_one_sentence(site: Site) -> None:
    for arguments, code, says in (
        (["scan", "no/such"], 1, "dataset 'no/such' is not declared"),
        (["scan", "--deep", "--full"], 2, "--full is about single keys"),
        (["findings", "no/such"], 1, "dataset 'no/such' is not declared"),
        (["findings", "--key", "nonsense"], 1, "nonsense"),
    ):
        said = kfm(site.environment, "qa", *arguments)
        assert (said.code, said.out) == (code, "")
        assert says in said.err
        assert "Traceback" not in said.err

"""`kfm qa` as an operator types it."""

import json

import pytest

from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.published_site import paths_of, replaced
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow


def test_scanning_and_listing_findings(site: Site) -> None:
    for hour in range(2):
        site.put(hour)
    site.work()
    key = site.key(1)

    result = kfm(site.environment, "qa", "scan")
    assert result.code == 0
    assert result.err.endswith("usgs/streamflow: keys scanned: 2 of 2\n")
    assert "usgs/streamflow: 0 errors and 0 warnings in 2 keys\n" in result.out
    assert "heritage/sites: 0 errors and 0 warnings in 0 keys\n" in result.out
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
        displayed = kfm(site.environment, "qa", "scan", "usgs/streamflow")
        assert displayed.code == 1
        assert f"processed/usgs-streamflow/{key}.parquet" in displayed.out
        assert "\n    Put the file back from a copy" in displayed.out

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


def test_usage_errors_are_one_sentence(site: Site) -> None:
    for arguments, code, message in (
        (["scan", "no/such"], 1, "dataset 'no/such' is not declared"),
        (["scan", "--deep", "--full"], 2, "--full applies to the nightly scan only"),
        (["findings", "no/such"], 1, "dataset 'no/such' is not declared"),
        (["findings", "--key", "nonsense"], 1, "nonsense"),
    ):
        result = kfm(site.environment, "qa", *arguments)
        assert (result.code, result.out) == (code, "")
        assert message in result.err
        assert "Traceback" not in result.err

"""The whole path with the store on S3: nothing of it needs a shared disk."""

import json
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.scans.extents import recompute_extent
from kfm_pipelines.operations.scans.nightly import nightly_scan
from kfm_pipelines.operations.scans.weekly import deep_scan
from kfm_pipelines_tests.fixtures.sites.command import run_kfm
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

NOBODYS = f"objects/sha256/00/{'0' * 64}.json"


def nightly_purge(site: Site) -> dg.ExecuteInProcessResult:
    job = build_definitions(site.services.settings.resources).resolve_job_def("kfm_purge")
    with dg.DagsterInstance.get() as instance:
        return job.execute_in_process(instance=instance, raise_on_error=False)


@pytest.mark.slow
def test_keys_are_published_to_a_bucket(stack: Stack, site_template: str, tmp_path: Path) -> None:
    store_url = f"s3://store-{uuid4().hex[:8]}/published"
    postgres_url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", postgres_url, site_template, KFM_STORE_URL=store_url) as site:
        for hour in range(2):
            put = site.put(hour)
        assert site.work() == {"keys": 2, "published": 2, "skipped": 0, "failed": 0}

        store = site.services.store
        item = json.loads(store.read(f"catalog/usgs-streamflow/items/{site.key(1)}.json"))
        digest = item["assets"]["data"]["file:checksum"].removeprefix("1220")
        assert store.digest(f"objects/sha256/{digest[:2]}/{digest}.parquet") == digest
        assert store.digest(f"processed/usgs-streamflow/{site.key(1)}.parquet") == digest
        assert json.loads(store.read("catalog/usgs-streamflow/collection.json"))["kfm:totals"]["items"] == 2
        assert store.paths("work") == []

        for scan in (nightly_scan, deep_scan, recompute_extent):
            found = scan(site.services, site.dataset, "a-run")
            assert (found.keys, found.errors, found.warnings) == (2, 0, 0)
        assert b"usgs-streamflow" in store.read("reports/data-docs/usgs-streamflow/index.html")

        site.send(site.auto_update_message(put))
        assert site.work() == {"keys": 1, "published": 0, "skipped": 1, "failed": 0}

        assert run_kfm("verify", "--all", "--json").json["ok"]

        before = store.paths("objects")
        store.write(NOBODYS, b"{}")
        assert nightly_purge(site).success
        assert store.paths("objects") == before
        store.write(NOBODYS, b"{}")
        store.write(f"catalog/usgs-streamflow/items/{site.key(1)}.json", b"{")
        assert not nightly_purge(site).success
        assert store.exists(NOBODYS)
    assert not (tmp_path / "site" / "data").exists()

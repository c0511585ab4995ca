"""How much a key asks of its store: requests to S3, and syncs on files. Both are counted, and neither may grow."""

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.stores.files import sync_file_system
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site
from kfm_pipelines_tests.fixtures.stores.s3_faults import Wire

KEYS = 20
# Objects for data, provenance, manifest and attestation; Item, revision, history, report and archived event.
PUTS_PER_KEY = 9
SYNCS_OF_A_RUN = 20


@pytest.mark.slow
def test_a_key_takes_eleven_requests(wired: Wire, stack: Stack, site_template: str, tmp_path: Path) -> None:
    store_url = f"s3://store-{uuid4().hex[:8]}/published"
    postgres_url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", postgres_url, site_template, KFM_STORE_URL=store_url) as site:
        for hour in range(KEYS):
            site.put(hour)
        wired.requests.clear()
        assert work_in_batches(site)["published"] == KEYS
    requests = wired.requests
    assert requests["ListObjectsV2"] == requests["DeleteObject"] == 0
    of_keys = {"GetObject": KEYS, "PutObject": PUTS_PER_KEY * KEYS, "CopyObject": KEYS}
    # Collection, pages and root are refreshed once for all keys, and shared files are looked up once.
    assert dict(requests - Counter(of_keys)) == {"PutObject": 10, "GetObject": 8, "HeadObject": 4}


@pytest.mark.slow
def test_a_key_takes_nineteen_syncs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for each of nine files, for its bytes and its folder, and one for the familiar name."""
    for hour in range(KEYS):
        site.put(hour)
    synced: list[int] = []

    def counting(descriptor: int) -> None:
        synced.append(descriptor)
        sync_file_system(descriptor)

    monkeypatch.setattr("kfm_pipelines.stores.files.sync_file_system", counting)
    assert work_in_batches(site)["published"] == KEYS
    assert len(synced) == 19 * KEYS + SYNCS_OF_A_RUN

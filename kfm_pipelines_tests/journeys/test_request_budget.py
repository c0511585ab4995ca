"""How much a key asks of S3, of Postgres and of a disk in a real run. All three are counted, and none may grow."""

from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.stores.files import sync_file_system
from kfm_pipelines_tests.fixtures.proxy import open_proxy
from kfm_pipelines_tests.fixtures.sites.site import OWN, Site, opened_site
from kfm_pipelines_tests.fixtures.stores.s3_faults import Wire

pytestmark = pytest.mark.slow

KEYS = 60
# Objects for data, provenance, manifest and attestation; Item, revision, history, report and archived event.
PUTS_PER_KEY = 9
SYNCS_OF_A_RUN = 32
MESSAGES_PER_KEY = 20
MESSAGES_OF_A_RUN = 1500


def test_a_key_takes_eleven_requests_and_few_messages(
    wired: Wire, stack: Stack, site_template: str, tmp_path: Path
) -> None:
    server = urlsplit(stack.environment["KFM_POSTGRES_URL"])
    assert server.hostname is not None
    assert server.port is not None
    with open_proxy(server.hostname, server.port, speaks_postgres=True) as proxy:
        postgres_url = server._replace(netloc=server.netloc.replace(f":{server.port}", f":{proxy.port}")).geturl()
        store_url = f"s3://store-{uuid4().hex[:8]}/published"
        with opened_site(tmp_path / "site", postgres_url, site_template, KFM_STORE_URL=store_url) as site:
            for hour in range(KEYS):
                site.put(hour)
            site.drain()
            wired.requests.clear()
            proxy.messages.clear()
            assert site.work()["published"] == KEYS
            messages = proxy.messages.total()
    requests = wired.requests
    assert requests["DeleteObject"] == 0
    # A look for unseen objects, at each dataset every five minutes, also reads the notifications of its bucket.
    looks = requests.pop("ListObjectsV2", 0)
    assert looks <= len(OWN)
    of_keys = {"GetObject": KEYS, "PutObject": PUTS_PER_KEY * KEYS, "CopyObject": KEYS}
    # Collection, pages and root are refreshed once for all keys, and shared files are looked up once.
    assert dict(requests - Counter(of_keys)) == {"PutObject": 14, "GetObject": 12 + looks, "HeadObject": 4}
    assert messages < MESSAGES_PER_KEY * KEYS + MESSAGES_OF_A_RUN


def test_a_run_takes_so_many_syncs_for_all_its_keys(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for hour in range(KEYS):
        site.put(hour)
    synced: list[int] = []

    def counting(descriptor: int) -> None:
        synced.append(descriptor)
        sync_file_system(descriptor)

    monkeypatch.setattr("kfm_pipelines.stores.files.sync_file_system", counting)
    assert site.work()["published"] == KEYS
    assert len(synced) == SYNCS_OF_A_RUN

"""A publication in which S3 answers every write with an error first still has one effect (P1)."""

from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.objects import Bucket
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.s3 import S3Store
from kfm_pipelines_tests.fixtures.runs.batches import (
    applied,
    expire_leases,
    publish,
    read_content_hash,
    reading,
    receive,
    stage,
    storing_in,
    upload,
)
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site
from kfm_pipelines_tests.fixtures.stores.s3_faults import FAULTS, Fault, Wire, conflict


def versions(site: Site, path: str) -> int:
    bucket, _, prefix = site.services.store.url.removeprefix("s3://").partition("/")
    found = s3_client().list_object_versions(Bucket=bucket, Prefix=f"{prefix}/{path}")
    return len(found.get("Versions", []))


def published_once(site: Site, key: str) -> None:
    """The Item was swapped once, each of its objects written once, and the log has it once."""
    layout, store = Layout(site.dataset.pipeline), site.services.store
    assert applied(site.services)[key] == 1
    *_, row = site.services.database.fetch(
        "SELECT detail FROM kfm.wal WHERE key = %(key)s AND step = 'publish' ORDER BY id", {"key": key}
    )
    release = Release.from_values(row["detail"])
    documents = {**release.documents, **release.records}.values()
    kept = [layout.content(release.content_hash), *map(layout.document, documents)]
    assert (
        read_content_hash(store, layout.item(key)) == release.content_hash == store.digest(layout.processed_data(key))
    )
    assert {path: versions(site, path) for path in (layout.item(key), *kept)} == dict.fromkeys(
        (layout.item(key), *kept), 1
    )
    assert store.paths("work") == []


@pytest.mark.slow
def test_every_fault_has_one_effect(wired: Wire, stack: Stack, site_template: str, tmp_path: Path) -> None:
    bucket, postgres_url = f"bad-{uuid4().hex[:8]}", stack.environment["KFM_POSTGRES_URL"]
    with (
        opened_site(tmp_path / "site", postgres_url, site_template, KFM_STORE_URL=f"s3://{bucket}/published") as site,
        storing_in(site.services, S3Store(Bucket(bucket, read_seconds=1), "published")),
    ):
        for hour, (name, fault) in enumerate({**FAULTS, "409": conflict}.items()):
            new = upload(site, hour=hour, version=hour)
            receive(site.services, new)
            batch = stage(site.services, site.dataset, [new.key], f"run-{name}")
            with (
                reading(site.services.store, Layout(site.dataset.pipeline).item(new.key)) as seen,
                wired.meeting(fault, "PutObject", lambda call: call % 2 == 1) as calls,
            ):
                batch.publish([new.key])
            assert len(calls) >= 8
            published_once(site, new.key)
            assert seen.problems == []
        unreachable_for_a_while(site, wired, hour + 1, FAULTS["lost"])


def unreachable_for_a_while(site: Site, wired: Wire, hour: int, fault: Fault) -> None:
    """Every answer is lost until the run gives up; the next run finds its work and finishes it."""
    new = upload(site, hour=hour, version=hour)
    receive(site.services, new)
    batch = stage(site.services, site.dataset, [new.key], "run-given-up")
    with wired.meeting(fault, "PutObject", lambda _: True):
        batch.publish([new.key])
    assert new.key not in applied(site.services)
    assert "cannot be reached" in batch.notes[new.key]
    expire_leases(site.services)
    publish(site.services, site.dataset, [new.key], "run-after")
    published_once(site, new.key)

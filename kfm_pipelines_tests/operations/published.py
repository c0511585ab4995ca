"""An installation that has published something of every dataset, and ways to spoil it from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kfm_pipelines.local.samples import tribal_areas_object
from kfm_pipelines.messaging.clients import s3_client
from kfm_pipelines.state.revisions import Revision, current_revision
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.care.register import Register, sites, with_reviewer
from kfm_pipelines_tests.site import START, Site

STREAMFLOW, DROUGHT, HERITAGE = "usgs/streamflow", "drought/tribal-areas", "heritage/sites"
HOURS = 3


def publish_everything(site: Site) -> Register:
    register = with_reviewer(site)
    for hour in range(HOURS):
        site.put(hour)
    name, data = tribal_areas_object(START)
    s3_client().put_object(Bucket=site.bucket, Key=name, Body=data)
    register.put(sites(register.dataset))
    site.work()
    register.approve()
    site.work()
    return register


def revision_of(site: Site, key: str) -> Revision:
    found = current_revision(site.workshop.database, key)
    assert found is not None
    return found


def paths_of(site: Site, key: str) -> dict[str, Path]:
    """Where the parts of a published streamflow key are."""
    layout, revision = Layout(site.dataset.pipeline), revision_of(site, key)
    return {
        "content": site.data / layout.content(revision.content_hash),
        "processed": site.data / layout.processed(key),
        "item": site.data / layout.item(key),
        "collection": site.data / layout.collection(),
    }


@contextmanager
def replaced(path: Path, data: bytes | None) -> Iterator[None]:
    """Other bytes in the place of a file, or none, for a while. A second name of the same file keeps what it had."""
    kept = path.with_name(path.name + ".kept")
    path.rename(kept)
    try:
        if data is not None:
            path.write_bytes(data)
        yield
    finally:
        kept.replace(path)


def flipped(path: Path) -> bytes:
    """The bytes of the file with one bit in the middle turned over."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    return bytes(data)

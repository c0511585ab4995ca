"""A publication stopped before every single write, on files and on S3, while a reader follows the Item (P1).

Each object is a new revision of one key. For the first new one, run after run is stopped at every write up to the
publish intent, each one write later. From there on every write has a revision of its own: its publication is stopped
there and completed by the next run. All sites use the same objects, so after each revision they must have published the
same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.runs.batches import (
    UploadedObject,
    applied,
    expire_leases,
    publish,
    read_content_hash,
    reading,
    receive,
    storing_in,
    tree,
    upload,
)
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site
from kfm_pipelines_tests.fixtures.stores.stops import Change, Stopped, StoppingStore

pytestmark = pytest.mark.slow

PUBLISHED = ("catalog", "objects", "processed")


SETTINGS = {"SOURCE_DATE_EPOCH": "1764806400", "KFM_MAX_ATTEMPTS": "100"}


@dataclass(frozen=True)
class PublishedObject:
    """An object, and what an undisturbed site has published after it."""

    uploaded: UploadedObject
    content: str | None
    tree: Mapping[str, str | None]


@dataclass(frozen=True)
class Undisturbed:
    resources: str
    revisions: tuple[PublishedObject, ...]
    before_intent: tuple[Change, ...]
    after_intent: tuple[Change, ...]


@pytest.fixture(scope="module")
def postgres_url(stack: Stack) -> str:
    return stack.environment["KFM_POSTGRES_URL"]


@pytest.fixture(scope="module")
def undisturbed(postgres_url: str, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    root = tmp_path_factory.mktemp("undisturbed")
    with opened_site(root, postgres_url, site_template, **SETTINGS) as site:
        revisions = [publish_object(site, upload(site))]
        # The second revision makes every write that a later one makes.
        counting = StoppingStore(site.services.store.durable)
        with storing_in(site.services, counting):
            revisions.append(publish_object(site, upload(site, version=1)))
        intent = next(place for place, change in enumerate(counting.changes) if change.does == "create")
        before, after = counting.changes[:intent], counting.changes[intent:]
        for number in range(2, 2 + len(after)):
            counting = StoppingStore(site.services.store.durable)
            with storing_in(site.services, counting):
                revisions.append(publish_object(site, upload(site, version=number)))
            # A document of the whole collection is written only when it changes.
            after = [change for change in after if change in counting.changes]
        complete = tuple(revisions[: 2 + len(after)])
        return Undisturbed(site.environment["KFM_RESOURCES"], complete, tuple(before), tuple(after))


def publish_object(site: Site, new: UploadedObject) -> PublishedObject:
    receive(site.services, new)
    run(site, new)
    store, item = site.services.store, Layout(site.dataset.pipeline).item(new.key)
    return PublishedObject(new, read_content_hash(store, item), tree(store, *PUBLISHED))


def run(site: Site, one: UploadedObject) -> None:
    publish(site.services, site.dataset, [one.key], f"run-{uuid4()}")


def stopped_run(site: Site, one: UploadedObject, before: Change) -> None:
    with storing_in(site.services, StoppingStore(site.services.store.durable, before)), pytest.raises(Stopped):
        run(site, one)
    expire_leases(site.services)


@pytest.mark.parametrize("kind", ["files", "s3"])
def test_a_reader_sees_complete_revisions_only(
    undisturbed: Undisturbed, postgres_url: str, site_template: str, tmp_path: Path, kind: str
) -> None:
    settings = {**SETTINGS, "KFM_RESOURCES": undisturbed.resources}
    # Items in a bucket name it, so documents differ there; the data does not.
    compared = PUBLISHED if kind == "files" else ("processed",)
    if kind == "s3":
        settings["KFM_STORE_URL"] = f"s3://stopped-{uuid4().hex[:8]}/published"
    first, *others = undisturbed.revisions
    stops = [undisturbed.before_intent, *((change,) for change in undisturbed.after_intent)]
    with opened_site(tmp_path / "site", postgres_url, site_template, **settings) as site:
        store, item = site.services.store, Layout(site.dataset.pipeline).item(first.uploaded.key)
        assert publish_object(site, first.uploaded).content == first.content
        with reading(store, item) as seen:
            for old, new, changes in zip(undisturbed.revisions, others, stops, strict=False):
                receive(site.services, new.uploaded)
                for change in changes:
                    stopped_run(site, new.uploaded, change)
                    assert read_content_hash(store, item) in (old.content, new.content), change
                run(site, new.uploaded)
                assert read_content_hash(store, item) == new.content
                published = tree(store, *compared)
                assert published == {path: new.tree[path] for path in new.tree if path.startswith(compared)}, changes

        assert seen.problems == []
        assert seen.contents <= {one.content for one in undisturbed.revisions}
        assert len(seen.contents) > len(others) / 2
        assert applied(site.services) == {first.uploaded.key: len(undisturbed.revisions)}
        assert store.paths("work") == []

"""A publication stopped before every single write it makes, on files and on S3, while somebody reads all the time (P1).

Each turn is a new revision of one key. In the first, run after run is stopped at every write up to the intent to
publish, each a write later than the one before. From there on every write has a turn of its own: the publication is
stopped there, and made good by the next run. All sites work on the same objects, so what they have published after each
turn has to be the same to the byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.runs.batches import (
    Told,
    applied,
    followed,
    forget_leases,
    hear,
    publish,
    reader_of,
    storing_in,
    told,
    tree,
)
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site
from kfm_pipelines_tests.fixtures.stores.stops import Change, Stopped, StoppingStore

pytestmark = pytest.mark.slow

PUBLISHED = ("catalog", "objects", "processed")


SETTINGS = {"SOURCE_DATE_EPOCH": "1764806400", "KFM_MAX_ATTEMPTS": "100"}


@dataclass(frozen=True)
class Turn:
    """What a site that nobody stopped was told, and what it shows after it."""

    told: Told
    content: str | None
    tree: Mapping[str, str | None]


@dataclass(frozen=True)
class Undisturbed:
    resources: str
    turns: tuple[Turn, ...]
    before_intent: tuple[Change, ...]
    after_intent: tuple[Change, ...]


@pytest.fixture(scope="module")
def postgres_url(stack: Stack) -> str:
    return stack.environment["KFM_POSTGRES_URL"]


@pytest.fixture(scope="module")
def undisturbed(postgres_url: str, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    root = tmp_path_factory.mktemp("undisturbed")
    with opened_site(root, postgres_url, site_template, **SETTINGS) as site:
        turns = [one_turn(site, told(site))]
        # The second revision makes every write that a later one makes.
        counting = StoppingStore(site.services.store)
        with storing_in(site.services, counting):
            turns.append(one_turn(site, told(site, turn=1)))
        intent = next(place for place, change in enumerate(counting.changes) if change.does == "copy_once")
        before, after = counting.changes[:intent], counting.changes[intent:]
        for turn in range(2, 2 + len(after)):
            counting = StoppingStore(site.services.store)
            with storing_in(site.services, counting):
                turns.append(one_turn(site, told(site, turn=turn)))
            # A document of the whole collection is written only when it changes.
            after = [change for change in after if change in counting.changes]
        kept = tuple(turns[: 2 + len(after)])
        return Undisturbed(site.environment["KFM_RESOURCES"], kept, tuple(before), tuple(after))


def one_turn(site: Site, new: Told) -> Turn:
    hear(site.services, new)
    run(site, new)
    store, item = site.services.store, Layout(site.dataset.pipeline).item(new.key)
    return Turn(new, followed(store, item), tree(store, *PUBLISHED))


def run(site: Site, turn: Told) -> None:
    publish(site.services, site.dataset, [turn.key], f"run-{uuid4()}")


def stopped_run(site: Site, turn: Told, before: Change) -> None:
    with storing_in(site.services, StoppingStore(site.services.store, before)), pytest.raises(Stopped):
        run(site, turn)
    forget_leases(site.services)


@pytest.mark.parametrize("kind", ["files", "s3"])
def test_a_reader_sees_complete_revisions_only(
    undisturbed: Undisturbed, postgres_url: str, site_template: str, tmp_path: Path, kind: str
) -> None:
    settings = {**SETTINGS, "KFM_RESOURCES": undisturbed.resources}
    # Items in a bucket name it, so documents differ there; the data does not.
    compared = PUBLISHED if kind == "files" else ("processed",)
    if kind == "s3":
        settings["KFM_STORE_URL"] = f"s3://stopped-{uuid4().hex[:8]}/published"
    first, *others = undisturbed.turns
    stops = [undisturbed.before_intent, *((change,) for change in undisturbed.after_intent)]
    with opened_site(tmp_path / "site", postgres_url, site_template, **settings) as site:
        store, item = site.services.store, Layout(site.dataset.pipeline).item(first.told.key)
        assert one_turn(site, first.told).content == first.content
        with reader_of(store, item) as seen:
            for old, new, changes in zip(undisturbed.turns, others, stops, strict=False):
                hear(site.services, new.told)
                for change in changes:
                    stopped_run(site, new.told, change)
                    assert followed(store, item) in (old.content, new.content), change
                run(site, new.told)
                assert followed(store, item) == new.content
                published = tree(store, *compared)
                assert published == {path: new.tree[path] for path in new.tree if path.startswith(compared)}, changes

        assert seen.problems == []
        assert seen.contents <= {turn.content for turn in undisturbed.turns}
        assert len(seen.contents) > len(others) / 2
        assert applied(site.services) == {first.told.key: len(undisturbed.turns)}
        assert store.paths("work") == []

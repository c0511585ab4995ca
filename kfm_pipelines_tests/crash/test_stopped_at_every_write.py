"""A publication stopped before every single write it makes, on files and on S3, while somebody reads all the time (P1).

Each turn is a new revision of one key: it is stopped one write later than the last one, and then made good. All sites
work on the same objects, so what they have published in the end has to be the same to the byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.publications import (
    Stopped,
    StoppingStore,
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
from kfm_pipelines_tests.site import Site, opened_site

pytestmark = pytest.mark.slow

PUBLISHED = ("catalog", "objects", "processed")


@dataclass(frozen=True)
class Undisturbed:
    """A site that nobody stopped: how many writes each turn took, and what it shows in the end."""

    resources: str
    turns: tuple[Told, ...]
    contents: tuple[str | None, ...]
    tree: Mapping[str, str | None]


@pytest.fixture(scope="module")
def postgres_url(stack: Stack) -> str:
    return stack.environment["KFM_POSTGRES_URL"]


@pytest.fixture(scope="module")
def undisturbed(postgres_url: str, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    root = tmp_path_factory.mktemp("undisturbed")
    with opened_site(root, postgres_url, site_template, SOURCE_DATE_EPOCH="1764806400") as site:
        turns, contents = [told(site)], []
        contents.append(one_turn(site, turns[0]))
        # The second revision makes every write that a later one makes.
        turns.append(told(site, turn=1))
        counting = StoppingStore(site.workshop.store)
        with storing_in(site.workshop, counting):
            contents.append(one_turn(site, turns[1]))
        for turn in range(2, len(counting.changes) + 1):
            turns.append(told(site, turn=turn))
            contents.append(one_turn(site, turns[turn]))
        resources = site.environment["KFM_RESOURCES"]
        return Undisturbed(resources, tuple(turns), tuple(contents), tree(site.workshop.store, *PUBLISHED))


def one_turn(site: Site, turn: Told) -> str | None:
    hear(site.workshop, turn)
    publish(site.workshop, site.dataset, [turn.key], f"run-{uuid4()}")
    return followed(site.workshop.store, Layout(site.dataset.pipeline).item(turn.key))


@pytest.mark.parametrize("kind", ["files", "s3"])
def test_a_reader_sees_complete_revisions_only(
    undisturbed: Undisturbed, postgres_url: str, site_template: str, tmp_path: Path, kind: str
) -> None:
    settings = {"KFM_RESOURCES": undisturbed.resources, "SOURCE_DATE_EPOCH": "1764806400"}
    if kind == "s3":
        settings["KFM_STORE_URL"] = f"s3://stopped-{uuid4().hex[:8]}/published"
    first, *others = undisturbed.turns
    with opened_site(tmp_path / "site", postgres_url, site_template, **settings) as site:
        store, item = site.workshop.store, Layout(site.dataset.pipeline).item(first.key)
        assert one_turn(site, first) == undisturbed.contents[0]
        with reader_of(store, item) as seen:
            for writes, turn in enumerate(others):
                stop_after(site, turn, writes)
                assert followed(store, item) in undisturbed.contents[writes : writes + 2]
                forget_leases(site.workshop)
                publish(site.workshop, site.dataset, [turn.key], f"run-{uuid4()}")
                assert followed(store, item) == undisturbed.contents[writes + 1]

        assert seen.problems == []
        assert seen.contents <= set(undisturbed.contents)
        assert len(seen.contents) > len(others) / 2
        assert applied(site.workshop) == {first.key: len(undisturbed.turns)}
        assert tree(store, *PUBLISHED) == undisturbed.tree
        assert store.paths("work") == []


def stop_after(site: Site, turn: Told, writes: int) -> None:
    hear(site.workshop, turn)
    stopping = StoppingStore(site.workshop.store, stop_after=writes)
    with storing_in(site.workshop, stopping), pytest.raises(Stopped):
        publish(site.workshop, site.dataset, [turn.key], f"run-{uuid4()}")

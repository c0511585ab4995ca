"""SIGKILL before and after a review: the same release awaits it in the end, one approval publishes it once, and nothing
unmasked stays behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.care.review import decide
from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.crash import applied, kill_worker, recover
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow

BEFORE_THE_REVIEW = (
    ("after", "compute"),
    ("inside", "mask"),
    ("after", "mask"),
    ("before", "stage_atomic"),
    ("after", "stage_atomic"),
    ("before", "await_review"),
    ("after", "await_review"),
)
AFTER_THE_REVIEW = (("before", "publish"), ("after", "publish"), ("inside", "commit"), ("after", "commit"))


@pytest.fixture
def register(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Register]:
    postgres_url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", postgres_url, site_template, KFM_LEASE_SECONDS="1") as site:
        register = with_reviewer(site)
        register.put(sites(register.dataset))
        yield register


@pytest.mark.parametrize(("moment", "place"), BEFORE_THE_REVIEW)
def test_killed_before_the_review(register: Register, moment: str, place: str) -> None:
    kill_worker(register.site, moment, place, KEY, 1)

    recover(register.site)

    _assert_published_after_an_approval(register)


@pytest.mark.parametrize(("moment", "place"), AFTER_THE_REVIEW)
def test_killed_after_the_approval(register: Register, moment: str, place: str) -> None:
    recover(register.site)
    register.approve()
    kill_worker(register.site, moment, place, KEY, 1)

    recover(register.site)

    _assert_published_once(register.site)


def test_killed_between_the_rejection_and_its_consequences(register: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    register.site.work()
    monkeypatch.setattr(decide, "clear_work", _stopped)
    with pytest.raises(KeyboardInterrupt):
        register.reject("not like this")
    monkeypatch.undo()

    register.site.work()

    assert register.reason() == f"care: {KEY}: refused by A reviewer of the tests: not like this"
    assert register.site.tree() == {}


def _stopped(*_: object) -> None:
    raise KeyboardInterrupt


def _assert_published_after_an_approval(register: Register) -> None:
    assert register.site.tree("catalog", "objects", "processed") == {}
    register.approve()
    recover(register.site)
    _assert_published_once(register.site)


def _assert_published_once(site: Site) -> None:
    assert applied(site) == {KEY: 1}
    assert len(site.tree("processed")) == 1
    assert site.tree("work") == {}

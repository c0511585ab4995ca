"""Rules on the crosswalk: each one broken once, and nothing else found."""

import pyarrow as pa
import pytest

from kfm_pipelines_tests.fixtures.care.handmade_releases import Record, Release
from kfm_pipelines_tests.fixtures.care.honest_releases import register_release, shapes_release
from kfm_pipelines_tests.fixtures.care.tampering import Change, Forge, on_crosswalk, rules_of

LINKS: dict[str, tuple[Forge, str]] = {
    "a row that is not there": (on_crosswalk(lambda t: pa.table({"row": [10**6], "record": [1]})), "crosswalk-links"),
    "a row before the first": (on_crosswalk(lambda t: pa.table({"row": [-1], "record": [1]})), "crosswalk-links"),
    "a record that is not there": (on_crosswalk(lambda t: pa.table({"row": [0], "record": [999]})), "crosswalk-links"),
    "a record before the first": (on_crosswalk(lambda t: pa.table({"row": [0], "record": [0]})), "crosswalk-links"),
}


@pytest.mark.parametrize(("forge", "rule"), LINKS.values(), ids=LINKS)
def test_a_link_to_nowhere_is_found(forge: Forge, rule: str) -> None:
    release = register_release()
    assert rules_of(release, forge(release.evidence())) == {rule}


def swap_rows(one: Record, other: Record) -> None:
    one.rows, other.rows = other.rows, one.rows


def publish_again(release: Release, sensitivity: str, rows: list[int] | None = None) -> None:
    first = release.of(sensitivity)[0]
    release.records.append(Record(dict(first.values), list(first.rows) if rows is None else rows))


def merge(into: Record, release: Release, gone: Record) -> None:
    into.rows += gone.rows
    release.records.remove(gone)


def drop(release: Release, sensitivity: str) -> None:
    release.records.remove(release.of(sensitivity)[0])


def drop_all(release: Release, sensitivity: str) -> None:
    gone = release.of(sensitivity)
    release.records = [record for record in release.records if record not in gone]


def forget_row(release: Release) -> None:
    """Removes a row from a coarse group."""
    release.of("restricted")[1].rows.pop()


RECORDS: dict[str, tuple[Change, str]] = {
    "a class without rules": (lambda r: r.of("open")[0].values.update(sensitivity="sacred"), "class-known"),
    "no class": (lambda r: r.of("open")[0].values.update(sensitivity=None), "class-known"),
    "a record from nowhere": (lambda r: publish_again(r, "withheld", rows=[]), "crosswalk-complete"),
    "a record of another class": (lambda r: swap_rows(r.of("open")[0], r.of("withheld")[0]), "crosswalk-class"),
    "a row published twice": (lambda r: publish_again(r, "withheld"), "crosswalk-once"),
    "a group published twice": (lambda r: publish_again(r, "restricted"), "crosswalk-once"),
    "two rows in a record": (lambda r: merge(r.of("withheld")[0], r, r.of("withheld")[1]), "crosswalk-once"),
    "an open row left out": (lambda r: drop(r, "open"), "left-out"),
    "a row in a cell left out": (lambda r: drop(r, "generalised"), "left-out"),
    "a row without a place left out": (lambda r: drop(r, "withheld"), "left-out"),
    "enough of a class left out": (lambda r: drop_all(r, "withheld"), "left-out"),
    "enough in groups left out": (lambda r: drop_all(r, "restricted"), "left-out"),
    "a coarse group left out": (lambda r: drop(r, "restricted"), "left-out"),
    "a row of a coarse group left out": (forget_row, "left-out"),
}


@pytest.mark.parametrize(("change", "rule"), RECORDS.values(), ids=RECORDS)
def test_a_changed_crosswalk_breaks_one_rule(change: Change, rule: str) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == {rule}


def test_a_record_has_one_rule() -> None:
    release = shapes_release()
    polygon, line, *_ = release.records
    merge(polygon, release, line)
    assert rules_of(release) == {"crosswalk-class"}


def test_an_omitted_class_is_not_published() -> None:
    release = register_release()
    rules = release.policy.model_dump()["classes"] | {"withheld": {"point": {"method": "omit"}}}
    release.policy = release.policy.model_validate({**release.policy.model_dump(), "classes": rules})
    assert rules_of(release) == {"omitted"}
    release.records = [record for record in release.records if record not in release.of("withheld")]
    assert rules_of(release) == set()

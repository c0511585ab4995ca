"""The verifier as a whole: honest releases pass, unreadable evidence never does, and the digest covers the release."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.care.verifier import Evidence, digest_of, release_digest
from kfm_pipelines.gates import judge_care
from kfm_pipelines.gates.verdict import Severity
from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, original_schema, parquet, register, unparquet
from kfm_pipelines_tests.fixtures.care.honest_releases import (
    NATIONS,
    displaced_geometry_release,
    displaced_release,
    open_release,
    register_release,
    shapes_release,
)
from kfm_pipelines_tests.fixtures.care.tampering import Change, breaches_of, rules_of

MAKERS = [register_release, displaced_release, displaced_geometry_release, shapes_release]


@pytest.mark.parametrize("make", MAKERS)
def test_an_honest_release_breaks_no_rule(make: Callable[[], Release]) -> None:
    assert breaches_of(make()) == ()


@pytest.mark.parametrize("make", MAKERS)
def test_an_empty_release_breaks_no_rule(make: Callable[[], Release]) -> None:
    release = make()
    release.rows, release.records = [], []
    assert breaches_of(release) == ()


def test_too_few_of_a_class_may_be_left_out_together() -> None:
    release = register_release()
    for record in release.of("withheld")[4:]:
        release.rows[record.rows[0]]["site_id"] = "one-and-the-same"
    for record in release.of("withheld")[:2]:
        release.rows[record.rows[0]]["site_id"] = "one-and-the-same"
    release.records = [record for record in release.records if record not in release.of("withheld")]
    assert breaches_of(release) == ()


def test_a_release_without_places_has_an_item_without_geometry() -> None:
    rules = {name: {"point": {"method": "suppress"}} for name in ("generalised", "restricted", "withheld")}
    release = register_release()
    release.policy = release.policy.model_validate({**release.policy.model_dump(exclude={"classes"}), "classes": rules})
    release.rows = [row for row in release.rows if row["sensitivity"] != "open"]
    release.records = []
    for row in range(len(release.rows)):
        release.publish([row])
    assert json.loads(release.evidence().item)["geometry"] is None
    assert breaches_of(release) == ()


def test_a_true_box_in_the_files_metadata_is_no_leak() -> None:
    release = shapes_release()
    box = release.item(release.table()[0])["bbox"]
    release.metadata["geo"] = json.dumps({"columns": {"geometry": {"bbox": box}}})
    assert breaches_of(release) == ()


PARTS = ["data", "item", "documents", "original", "crosswalk"]
GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda honest: b"",
    "another format": lambda honest: b"\x00PAR1garbage{",
    "a number": lambda honest: b"\xef\xbb\xbf1",
    "truncated": lambda honest: honest[: len(honest) // 2],
}


@pytest.mark.parametrize("part", PARTS)
def test_unreadable_evidence_is_a_breach(part: str) -> None:
    release = register_release()
    evidence = release.evidence()
    honest = b'{"used": "a register"}' if part == "documents" else getattr(evidence, part)
    for name, spoil in GARBAGE.items():
        spoilt: Any = {"provenance": spoil(honest)} if part == "documents" else spoil(honest)
        assert rules_of(release, replace(evidence, **{part: spoilt})) == {"evidence-readable"}, name


@pytest.mark.parametrize(
    "text", ['{"properties": {}, "properties": {"a": 1}}', '{"properties": {"a": NaN}}', "[" * 100_000]
)
def test_an_ambiguous_document_is_not_read(text: str) -> None:
    release = register_release()
    assert rules_of(release, replace(release.evidence(), item=text.encode())) == {"evidence-readable"}
    assert rules_of(release, replace(release.evidence(), documents={"a": text.encode()})) == {"evidence-readable"}


ORIGINALS: dict[str, Change] = {
    "no longitude": lambda r: r.rows[9].update(longitude=None),
    "longitude is no number": lambda r: r.rows[9].update(longitude=float("nan")),
    "latitude without end": lambda r: r.rows[9].update(latitude=float("inf")),
    "outside the extent": lambda r: r.rows[9].update(latitude=51.2),
    "no class": lambda r: r.rows[9].update(sensitivity=None),
    "a class without rules": lambda r: r.rows[9].update(sensitivity="sacred"),
    "no stable id": lambda r: r.rows[9].update(site_id=None),
}


@pytest.mark.parametrize("change", ORIGINALS.values(), ids=ORIGINALS)
def test_an_unusable_original_is_a_breach(change: Change) -> None:
    release = register_release()
    change(release)
    assert {breach.rule for breach in breaches_of(release)} == {"evidence-readable"}


SHAPES = {
    "several points": shapely.to_wkb(shapely.MultiPoint([(-98.1, 38.1), (-98.2, 38.2)])),
    "nothing": shapely.to_wkb(shapely.Polygon()),
    "null": None,
    "garbage": b"\x01\x02",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_shape_without_a_rule_is_a_breach(shape: bytes | None) -> None:
    release = shapes_release()
    rows = [{**row, "geometry": shape} if number == 0 else row for number, row in enumerate(release.rows)]
    original = parquet(pa.Table.from_pylist(rows, schema=original_schema(release.dataset)))
    assert rules_of(release, replace(release.evidence(), original=original)) == {"evidence-readable"}


def test_an_original_with_other_columns_is_a_breach() -> None:
    release = register_release()
    evidence = release.evidence()
    less = parquet(unparquet(evidence.original).drop_columns(["easting"]))
    assert rules_of(release, replace(evidence, original=less)) == {"evidence-readable"}


@pytest.mark.parametrize(
    "columns",
    [
        {"row": [0], "record": [None]},
        {"row": [0]},
        {"row": [0.0], "record": [1]},
        {"row": [0], "record": [1], "x": [1]},
    ],
)
def test_a_crosswalk_with_other_columns_is_a_breach(columns: dict[str, list[object]]) -> None:
    release = register_release()
    forged = replace(release.evidence(), crosswalk=parquet(pa.table(columns)))
    assert rules_of(release, forged) == {"evidence-readable"}


def open_evidence(**properties: object) -> Evidence:
    item = {"type": "Feature", "properties": {"kfm:policy": open_release().policy.name, **properties}}
    return Evidence(b"", json.dumps(item).encode(), {}, b"", b"", bytes)


def test_an_open_policy_only_has_to_be_named() -> None:
    release = open_release()
    assert breaches_of(release, open_evidence()) == ()
    assert rules_of(release, open_evidence(**{"kfm:policy": "another@1"})) == {"item-policy"}


def test_an_open_release_names_labels_and_nations() -> None:
    release = open_release()
    release.dataset = register(sovereignty=NATIONS)
    release.policy = release.policy.model_copy(update={"labels": ["care:ethics"]})
    assert rules_of(release, open_evidence()) == {"item-labels", "item-sovereignty"}
    named = {"kfm:labels": ["care:ethics"], "kfm:sovereignty": NATIONS.notice}
    assert breaches_of(release, open_evidence(**named)) == ()


def test_the_digest_covers_all_published_bytes_and_no_others() -> None:
    evidence = Evidence(b"data", b"item", {"a": b"1", "b": b"2"}, b"original", b"crosswalk", bytes)
    others = [
        replace(evidence, data=b"datA"),
        replace(evidence, item=b"iteM"),
        replace(evidence, documents={"a": b"1", "b": b"3"}),
        replace(evidence, documents={"a": b"2", "b": b"1"}),
        replace(evidence, documents={"a": b"1"}),
        replace(evidence, documents={"a": b"1", "c": b"2"}),
    ]
    assert len({digest_of(one) for one in [evidence, *others]}) == 7
    assert digest_of(replace(evidence, documents={"b": b"2", "a": b"1"})) == digest_of(evidence)
    assert digest_of(replace(evidence, original=b"", crosswalk=b"", rewrite=lambda: b"1")) == digest_of(evidence)


def test_the_digest_follows_from_the_hashes() -> None:
    evidence = Evidence(b"data", b"item", {"a": b"1", "b": b"2"}, b"", b"", bytes)
    data, item, a, b = (hashlib.sha256(part).hexdigest() for part in (b"data", b"item", b"1", b"2"))
    assert release_digest(data, item, {"b": b, "a": a}) == digest_of(evidence)


def test_the_repr_of_evidence_contains_none_of_its_bytes() -> None:
    canary = b"canary"
    assert "canary" not in repr(Evidence(canary, canary, {"a": canary}, canary, canary, lambda: canary))


def test_the_gate_passes_an_honest_release() -> None:
    release = register_release()
    verdict = judge_care(release.policy, release.dataset, release.evidence())
    assert (verdict.gate, verdict.passed, verdict.findings) == ("care", True, ())


def test_a_breach_fails_the_gate() -> None:
    release = register_release()
    release.properties["kfm:policy"] = "another@1"
    verdict = judge_care(release.policy, release.dataset, release.evidence())
    assert not verdict.passed
    assert [(finding.rule, finding.severity) for finding in verdict.findings] == [("item-policy", Severity.ERROR)]
    assert "kfm:policy" in verdict.reason


def test_parts_of_a_digest_are_not_confused() -> None:
    assert release_digest("a", "b", {"c": "de"}) != release_digest("a", "b", {"cd": "e"})

"""Rules that bind the Item to the published bytes."""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfm_pipelines.care.verifier import Evidence
from kfm_pipelines_tests.fixtures.care.handmade_releases import PROVENANCE, Release, asset
from kfm_pipelines_tests.fixtures.care.honest_releases import displaced_release, register_release
from kfm_pipelines_tests.fixtures.care.tampering import breaches_of, rules_of

Item = dict[str, Any]


def data(**changes: Any) -> Callable[[Item], object]:
    return lambda item: item["assets"]["data"].update(changes)


def provenance(**changes: Any) -> Callable[[Item], object]:
    return lambda item: item["assets"]["provenance"].update(changes)


ITEM: dict[str, tuple[Callable[[Item], object], str]] = {
    "no assets": (lambda item: item.pop("assets"), "item-data"),
    "no data": (lambda item: item["assets"].pop("data"), "item-data"),
    "data that is no object": (lambda item: item["assets"].update(data=[]), "item-data"),
    "another checksum": (data(**{"file:checksum": "1220" + "0" * 64}), "item-data"),
    "another size": (data(**{"file:size": 17}), "item-data"),
    "another address": (data(href=f"../../../objects/sha256/00/{'0' * 64}.parquet"), "item-data"),
    "the address of other data": (lambda item: item["assets"].update(data=asset(b"other", "parquet")), "item-data"),
    "more rows": (lambda item: item["properties"].update({"table:row_count": 10**6}), "item-data"),
    "no number of rows": (lambda item: item["properties"].pop("table:row_count"), "item-data"),
    "no provenance": (lambda item: item["assets"].pop("provenance"), "item-provenance"),
    "another provenance": (provenance(**{"file:checksum": "1220" + "0" * 64}), "item-provenance"),
    "provenance elsewhere": (provenance(href="x.json"), "item-provenance"),
    "a link to the inside": (lambda item: item.update(links=[{"href": "../../../work/masked/x"}]), "item-address"),
    "an asset of the inside": (lambda item: item["assets"].update(more={"href": "work/restricted/x"}), "item-address"),
    "no size": (lambda item: item["properties"].pop("anon:size"), "item-size"),
    "too small a size": (lambda item: item["properties"].update({"anon:size": 0.001}), "item-size"),
    "a size in words": (lambda item: item["properties"].update({"anon:size": "360"}), "item-size"),
}


def with_item(release: Release, change: Callable[[Item], object]) -> Evidence:
    item = release.item(release.table()[0])
    change(item)
    return replace(release.evidence(), item=json.dumps(item).encode())


@pytest.mark.parametrize(("change", "rule"), ITEM.values(), ids=ITEM)
def test_an_item_for_other_data_is_found(change: Callable[[Item], object], rule: str) -> None:
    release = register_release()
    assert rule in rules_of(release, with_item(release, change))
    assert rules_of(release, with_item(release, change)) <= {rule, "item-provenance"}


def test_an_address_of_unpublished_data_is_found() -> None:
    release = register_release()
    digest = hashlib.sha256(release.evidence().data).hexdigest()
    forged = with_item(release, data(href=f"../../../work/restricted/{digest}.parquet"))
    assert rules_of(release, forged) == {"item-address"}


def test_provenance_that_is_not_staged_is_found() -> None:
    release = register_release()
    forged = replace(release.evidence(), documents={})
    assert rules_of(release, forged) == {"item-provenance"}


def test_the_size_uses_the_shortest_degrees() -> None:
    """5 km each way is 0.09 degrees of latitude, but 0.117 of longitude at 40 degrees north."""
    release = displaced_release()
    for size, rules in ((0.09, {"item-size"}), (0.116, {"item-size"}), (0.117, set()), (0.118, set()), (360, set())):
        release.properties["anon:size"] = size
        assert rules_of(release) == rules, size


def test_the_size_without_places_is_the_globe() -> None:
    release = register_release()
    release.rows = [{**row, "sensitivity": "withheld"} for row in release.rows]
    release.records = []
    for row in range(len(release.rows)):
        release.publish([row])
    assert breaches_of(release) == ()
    release.properties["anon:size"] = 1.5
    assert rules_of(release) == {"item-size"}


SPELT: dict[str, Callable[[bytes], str]] = {
    "SHA-256": lambda part: hashlib.sha256(part).hexdigest(),
    "SHA-256 in capitals": lambda part: hashlib.sha256(part).hexdigest().upper(),
    "a multihash": lambda part: "1220" + hashlib.sha256(part).hexdigest(),
    "MD5": lambda part: f"md5:{hashlib.md5(part, usedforsecurity=False).hexdigest()}",
    "SHA-256 in base64": lambda part: base64.b64encode(hashlib.sha256(part).digest()).decode(),
    "MD5 in base64": lambda part: base64.b64encode(hashlib.md5(part, usedforsecurity=False).digest()).decode(),
    "base64 for addresses": lambda part: base64.urlsafe_b64encode(hashlib.sha256(part).digest()).decode().rstrip("="),
}


@pytest.mark.parametrize("part", ["original", "crosswalk"])
@pytest.mark.parametrize("spell", SPELT.values(), ids=SPELT)
def test_a_digest_of_an_unpublished_file_is_found(spell: Callable[[bytes], str], part: str) -> None:
    release = register_release()
    digest = spell(getattr(release.evidence(), part))
    forged = with_item(release, lambda item: item["properties"].update({"kfm:inputs_hash": digest}))
    assert rules_of(release, forged) == {"leak-digest"}
    release.documents["more"] = {"used": [{"digest": digest}]}
    assert rules_of(release) == {"leak-digest"}


def test_a_release_may_have_no_provenance() -> None:
    release = register_release()
    del release.documents[PROVENANCE]
    assert breaches_of(release) == ()

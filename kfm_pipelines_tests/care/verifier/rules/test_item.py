"""Rules on the Item: each one broken once, and nothing else found."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfm_pipelines_tests.fixtures.care.honest_releases import register_release
from kfm_pipelines_tests.fixtures.care.tampering import rules_of

ITEM: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another policy": (lambda item: item["properties"].update({"kfm:policy": "heritage-sites@2"}), "item-policy"),
    "no policy": (lambda item: item["properties"].pop("kfm:policy"), "item-policy"),
    "no labels": (lambda item: item["properties"].pop("kfm:labels"), "item-labels"),
    "a label less": (lambda item: item["properties"]["kfm:labels"].pop(), "item-labels"),
    "no word of the nations": (lambda item: item["properties"].pop("kfm:sovereignty"), "item-sovereignty"),
    "an empty notice": (lambda item: item["properties"].update({"kfm:sovereignty": ""}), "item-sovereignty"),
    "no warning": (lambda item: item["properties"].pop("anon:warning"), "item-warning"),
    "a blank warning": (lambda item: item["properties"].update({"anon:warning": " "}), "item-warning"),
    "no box": (lambda item: item.pop("bbox"), "item-box"),
    "another box": (lambda item: item["bbox"].__setitem__(0, -101.75), "item-box"),
    "a box of no numbers": (lambda item: item.update(bbox=["a", "b", "c", "d"]), "item-box"),
    "no geometry": (lambda item: item.update(geometry=None), "item-box"),
    "one corner only": (lambda item: item["geometry"].update(coordinates=[[item["bbox"][:2]] * 5]), "item-box"),
    "a corner more": (lambda item: item["geometry"]["coordinates"][0].insert(1, [-98.75, 38.25]), "item-box"),
    "another corner": (lambda item: item["geometry"]["coordinates"][0].__setitem__(1, [-98.75, 38.25]), "item-box"),
    "a point": (lambda item: item.update(geometry={"type": "Point", "coordinates": [-98.75, 38.25]}), "item-box"),
}


@pytest.mark.parametrize(("change", "rule"), ITEM.values(), ids=ITEM)
def test_a_changed_item_breaks_one_rule(change: Callable[[dict[str, Any]], object], rule: str) -> None:
    release = register_release()
    item = release.item(release.table()[0])
    change(item)
    assert rules_of(release, replace(release.evidence(), item=json.dumps(item).encode())) == {rule}


@pytest.mark.parametrize("geo", ['{"columns": {"geometry": {"bbox": [-101.75, 37, -95, 39]}}}', "garbage", "[]"])
def test_a_wrong_bounding_box_in_the_geo_metadata_is_found(geo: str) -> None:
    release = register_release()
    release.metadata["geo"] = geo
    assert rules_of(release) == {"geo-box"}


def test_an_item_without_places_has_no_bounding_box() -> None:
    release = register_release()
    release.rows = [{**row, "sensitivity": "withheld"} for row in release.rows]
    release.records = []
    for row in range(len(release.rows)):
        release.publish([row])
    item = {**release.item(release.table()[0]), "bbox": [-99.0, 38.0, -98.0, 39.0]}
    assert rules_of(release, replace(release.evidence(), item=json.dumps(item).encode())) == {"item-box"}

"""The verifier on what holds a release together: the Item is about these bytes, and the bytes about these rows."""

import base64
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.care.verifier import Breach, Evidence
from kfm_pipelines_tests.fixtures.care.handmade_releases import PROVENANCE, Release, asset, parquet, unparquet
from kfm_pipelines_tests.fixtures.care.honest_releases import displaced_release, register_release
from kfm_pipelines_tests.fixtures.care.tampering import Forge, before_footer, breaches_of, rules_of

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
def test_an_item_of_something_else_is_found(change: Callable[[Item], object], rule: str) -> None:
    release = register_release()
    assert rule in rules_of(release, with_item(release, change))
    assert rules_of(release, with_item(release, change)) <= {rule, "item-provenance"}


def test_the_data_is_not_fetched_from_the_inside() -> None:
    release = register_release()
    digest = hashlib.sha256(release.evidence().data).hexdigest()
    forged = with_item(release, data(href=f"../../../work/restricted/{digest}.parquet"))
    assert rules_of(release, forged) == {"item-address"}


def test_provenance_that_is_not_staged_is_none() -> None:
    release = register_release()
    forged = replace(release.evidence(), documents={})
    assert rules_of(release, forged) == {"item-provenance"}


def test_a_size_is_told_in_degrees_where_they_are_shortest() -> None:
    """5 km each way are 0.09 degrees of latitude, but 0.117 of longitude at 40 degrees north."""
    release = displaced_release()
    for size, rules in ((0.09, {"item-size"}), (0.116, {"item-size"}), (0.117, set()), (0.118, set()), (360, set())):
        release.properties["anon:size"] = size
        assert rules_of(release) == rules, size


def test_without_any_place_all_the_world_is_the_size() -> None:
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
def test_no_digest_of_what_is_not_published_gets_out(spell: Callable[[bytes], str], part: str) -> None:
    release = register_release()
    digest = spell(getattr(release.evidence(), part))
    forged = with_item(release, lambda item: item["properties"].update({"kfm:inputs_hash": digest}))
    assert rules_of(release, forged) == {"leak-digest"}
    release.documents["more"] = {"used": [{"digest": digest}]}
    assert rules_of(release) == {"leak-digest"}


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


def unused_entries(evidence: Evidence) -> Evidence:
    table = unparquet(evidence.data)
    place = table.column_names.index("condition")
    codes = pa.array([None if value is None else 0 for value in table.column("condition").to_pylist()], pa.int32())
    entries = pa.DictionaryArray.from_arrays(codes, pa.array(["good", "anything at all"]))
    told = table.set_column(place, "condition", entries)
    return replace(evidence, data=written(told, store_schema=False, write_statistics=False))


FORGED: dict[str, Forge] = {
    "unused entries of a dictionary": unused_entries,
    "bytes before the footer": lambda e: replace(e, data=before_footer(e.data, b"anything at all")),
    "a row group for each row": lambda e: replace(e, data=written(unparquet(e.data), row_group_size=1)),
    "another compression": lambda e: replace(e, data=written(unparquet(e.data), compression_level=9)),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_bytes_of_no_row_are_found(forge: Forge) -> None:
    release = register_release()
    evidence = forge(release.evidence())
    assert unparquet(evidence.data).equals(unparquet(evidence.rewritten))
    item = release.item(release.table()[0])
    item["assets"]["data"] = asset(evidence.data, "parquet")
    assert rules_of(release, replace(evidence, item=json.dumps(item).encode())) == {"canonical-bytes"}


def test_what_was_written_again_is_the_same_table() -> None:
    release = register_release()
    evidence = release.evidence()
    other = replace(evidence, rewritten=parquet(unparquet(evidence.data).slice(1)))
    subjects = {breach.subject for breach in breaches_of(release, other)}
    assert subjects == {"data", "rewritten"}


@pytest.mark.parametrize("rewritten", [b"", b"PAR1garbage"])
def test_what_was_written_again_can_be_read(rewritten: bytes) -> None:
    release = register_release()
    found = breaches_of(release, replace(release.evidence(), rewritten=rewritten))
    assert found == (Breach("evidence-readable", "rewritten", "a Parquet file", "something else"),)


def test_a_release_may_have_no_provenance() -> None:
    release = register_release()
    del release.documents[PROVENANCE]
    assert breaches_of(release) == ()

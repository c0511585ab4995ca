"""The integrity gate: what came in is what was promised, and what is staged is what was judged, to the byte."""

from collections.abc import Iterator, Mapping
from typing import Any

from kfm_pipelines.catalog.documents import asset_of, checksum, read_item, sha256
from kfm_pipelines.catalog.facts import PROVENANCE
from kfm_pipelines.gates.subject import ReleaseSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Verdict, error, judge

DATA, ITEM = "data.parquet", "item.json"
# In an Item each file is an asset; this is which.
ASSETS = {"data": DATA, "provenance": PROVENANCE}


def judge_integrity(subject: ReleaseSubject) -> Verdict:
    return judge("integrity", INTEGRITY_RULES, subject)


def _input_etags(subject: ReleaseSubject) -> Iterator[Finding]:
    for one in subject.inputs:
        if one.found_etag is None:
            yield error("input-etag", one.asset_uri, "an object that was fetched", "no record of it")
        elif one.etag is not None and one.etag != one.found_etag:
            yield error("input-etag", one.asset_uri, f"ETag {one.etag}", f"ETag {one.found_etag}")


def _input_sizes(subject: ReleaseSubject) -> Iterator[Finding]:
    for one in subject.inputs:
        if one.size is not None and one.size != one.found_size:
            yield error("input-size", one.asset_uri, f"{one.size} bytes", f"{one.found_size} bytes")


def _judged_bytes(subject: ReleaseSubject) -> Iterator[Finding]:
    found = sha256(subject.staged.get(DATA, b""))
    if found != subject.judged:
        yield error("judged-bytes", DATA, f"the bytes judged, {subject.judged[:12]}", found[:12])


def _staged_digests(subject: ReleaseSubject) -> Iterator[Finding]:
    for name in sorted({*subject.digests, *subject.staged}):
        expected = subject.digests.get(name, "")[:12] or "no such file"
        found = sha256(subject.staged[name])[:12] if name in subject.staged else "no such file"
        if expected != found:
            yield error("staged-digest", name, expected, found)


def _item_agrees(subject: ReleaseSubject) -> Iterator[Finding]:
    for asset, name in ASSETS.items():
        stated = asset_of(item_of(subject), asset)
        data = subject.staged.get(name, b"")
        for fact, expected in (("file:checksum", checksum(sha256(data))), ("file:size", len(data))):
            if stated.get(fact) != expected:
                yield error("item-agrees", f"{asset} {fact}", str(expected), str(stated.get(fact))[:80])


def item_of(subject: ReleaseSubject) -> Mapping[str, Any]:
    return read_item(subject.staged.get(ITEM))


_CHANGED = "The object changed after its event: upload it again, which sends a new event."
_WRITTEN = "Something wrote into the work tier: find out what, then redrive, which stages it anew."
INTEGRITY_RULES: tuple[Rule[ReleaseSubject], ...] = (
    Rule("input-etag", _input_etags, _CHANGED),
    Rule("input-size", _input_sizes, _CHANGED),
    Rule("judged-bytes", _judged_bytes, _WRITTEN),
    Rule("staged-digest", _staged_digests, _WRITTEN),
    Rule("item-agrees", _item_agrees, _WRITTEN),
)

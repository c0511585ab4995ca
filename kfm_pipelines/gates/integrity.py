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


def _check_input_etags(subject: ReleaseSubject) -> Iterator[Finding]:
    for one in subject.inputs:
        if one.found_etag is None:
            yield error("input-etag", one.asset_uri, "an object that was fetched", "no record of it")
        elif one.etag is not None and one.etag != one.found_etag:
            yield error("input-etag", one.asset_uri, f"ETag {one.etag}", f"ETag {one.found_etag}")


def _check_input_sizes(subject: ReleaseSubject) -> Iterator[Finding]:
    for one in subject.inputs:
        if one.size is not None and one.size != one.found_size:
            yield error("input-size", one.asset_uri, f"{one.size} bytes", f"{one.found_size} bytes")


def _check_judged_bytes(subject: ReleaseSubject) -> Iterator[Finding]:
    found = sha256(subject.staged.get(DATA, b""))
    if found != subject.judged:
        yield error("judged-bytes", DATA, f"the bytes judged, {subject.judged[:12]}", found[:12])


def _check_staged_digests(subject: ReleaseSubject) -> Iterator[Finding]:
    for name in sorted({*subject.digests, *subject.staged}):
        expected = subject.digests.get(name, "")[:12] or "no such file"
        found = sha256(subject.staged[name])[:12] if name in subject.staged else "no such file"
        if expected != found:
            yield error("staged-digest", name, expected, found)


def _check_item_agrees(subject: ReleaseSubject) -> Iterator[Finding]:
    for asset, name in ASSETS.items():
        stated = asset_of(item_of(subject), asset)
        data = subject.staged.get(name, b"")
        for fact, expected in (("file:checksum", checksum(sha256(data))), ("file:size", len(data))):
            if stated.get(fact) != expected:
                yield error("item-agrees", f"{asset} {fact}", str(expected), str(stated.get(fact))[:80])


def item_of(subject: ReleaseSubject) -> Mapping[str, Any]:
    return read_item(subject.staged.get(ITEM))


_INPUT_CHANGED = "The object changed after its event: upload it again, which sends a new event."
_STAGED_FILE_CHANGED = "Something wrote into the work tier: find out what, then redrive, which stages it anew."
INTEGRITY_RULES: tuple[Rule[ReleaseSubject], ...] = (
    Rule("input-etag", _check_input_etags, _INPUT_CHANGED),
    Rule("input-size", _check_input_sizes, _INPUT_CHANGED),
    Rule("judged-bytes", _check_judged_bytes, _STAGED_FILE_CHANGED),
    Rule("staged-digest", _check_staged_digests, _STAGED_FILE_CHANGED),
    Rule("item-agrees", _check_item_agrees, _STAGED_FILE_CHANGED),
)

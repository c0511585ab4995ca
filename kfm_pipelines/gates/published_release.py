"""Compares what readers find with what was published: the Item, the bytes it links, the copy under its plain name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.catalog.documents import asset_of, checksum, read_item, sha256
from kfm_pipelines.gates.verdict import Finding, Rule, Verdict, error, judge
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.stores import Layout
from kfm_pipelines.text import truncate_line


@dataclass(frozen=True, slots=True)
class PublishedSubject:
    """Files found in the store; None where missing."""

    recorded: Revision
    layout: Layout
    item: bytes | None
    content: bytes | None
    processed_hash: str | None
    documents: Mapping[str, tuple[int, str] | None]  # size and digest by the name of the asset in the Item

    @property
    def item_path(self) -> str:
        return self.layout.item(self.recorded.key)

    @property
    def content_path(self) -> str:
        return self.layout.content(self.recorded.content_hash)

    @property
    def processed_path(self) -> str:
        return self.layout.processed_data(self.recorded.key)

    @property
    def parsed_item(self) -> Mapping[str, Any]:
        return read_item(self.item)

    @property
    def content_hash(self) -> str | None:
        return _digest(self.content)

    @property
    def matches_record(self) -> bool:
        """Returns whether Item and bytes are the ones that the gates judged."""
        return self.content_hash == self.recorded.content_hash and _digest(self.item) == self.recorded.item_hash


def judge_published_bytes(subject: PublishedSubject) -> Verdict:
    return judge("published", PUBLISHED_RULES, subject)


def _check_item_present(subject: PublishedSubject) -> Iterator[Finding]:
    if subject.item is None:
        yield error("published-item-present", subject.item_path, "the Item of the key", "nothing")


def _check_digests(subject: PublishedSubject) -> Iterator[Finding]:
    recorded = subject.recorded
    found = [
        (subject.content_path, recorded.content_hash, subject.content_hash),
        (subject.processed_path, recorded.content_hash, subject.processed_hash),
    ]
    if subject.item is not None:
        found.append((subject.item_path, recorded.item_hash, _digest(subject.item)))
    for path, expected, measured in found:
        if measured != expected:
            found_digest = f"sha256 {measured[:16]}…" if measured else "nothing"
            yield error("published-digest", path, f"sha256 {expected[:16]}…", found_digest)


def _check_item_agrees(subject: PublishedSubject) -> Iterator[Finding]:
    if subject.item is None:
        return
    item = subject.parsed_item
    if subject.content is not None:
        yield from _check_asset_agrees(item, "data", len(subject.content), str(subject.content_hash))
    for name, found in subject.documents.items():
        if found is None:
            yield error("published-item-agrees", f"asset {name}", "the document the Item points to", "nothing")
        else:
            yield from _check_asset_agrees(item, name, *found)
    if not str(asset_of(item, "data").get("href")).endswith(f"/{subject.content_path}"):
        yield error("published-item-agrees", "asset data, href", subject.content_path, "another address")


def _check_asset_agrees(item: Mapping[str, Any], name: str, size: int, digest: str) -> Iterator[Finding]:
    asset = asset_of(item, name)
    if asset.get("file:size") != size:
        measured = f"the Item says {truncate_line(str(asset.get('file:size')), 20)}"
        yield error("published-item-agrees", f"asset {name}, file:size", f"{size}, the size of the bytes", measured)
    if asset.get("file:checksum") != checksum(digest):
        measured = f"the Item says {truncate_line(str(asset.get('file:checksum')), 20)}"
        expected = f"{checksum(digest)[:20]}…, as the bytes have"
        yield error("published-item-agrees", f"asset {name}, file:checksum", expected, measured)


def _digest(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


RESTORE = "Put the file back from a copy; or move it away and upload the inputs of the key again, which restores it."
PUBLISHED_RULES: tuple[Rule[PublishedSubject], ...] = (
    Rule("published-item-present", _check_item_present, RESTORE),
    Rule("published-digest", _check_digests, RESTORE),
    Rule("published-item-agrees", _check_item_agrees, RESTORE),
)

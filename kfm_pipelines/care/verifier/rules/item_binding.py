"""Rules that bind the Item to the published bytes: checksums, sizes, counts, precision and addresses."""

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.compute as pc

from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.protected_values import texts_in

PROVENANCE = "provenance.jsonld"
_SHA256_MULTIHASH_PREFIX = "1220"  # multihash code and length of SHA-256
_UNPUBLISHED_PREFIX = "work/"  # not for readers
_METRES_IN_A_DEGREE = 111_320.0
_WHOLE_GLOBE_DEGREES = 360.0
_ROUNDING = 0.0005
_DIGEST_ALGORITHMS = ("sha256", "md5", "sha1", "sha512", "blake2b")


def item_describes_data(case: Case) -> Iterator[Breach]:
    if not _describes(_asset(case, "data"), case.evidence.data, "parquet"):
        yield Breach("item-data", "item: assets.data", "checksum, size and address of the data", "something else")
    if case.item["properties"].get("table:row_count") != case.published.num_rows:
        yield Breach("item-data", "item: table:row_count", "the number of published rows", "something else")


def item_describes_provenance(case: Case) -> Iterator[Breach]:
    document, asset = case.evidence.documents.get(PROVENANCE), _asset(case, "provenance")
    if document is None and not asset:
        return
    if document is None or not _describes(asset, document, "json"):
        expected = "checksum, size and address of the staged provenance"
        yield Breach("item-provenance", "item: assets.provenance", expected, "something else")


def item_links_only_published(case: Case) -> Iterator[Breach]:
    found = sum(_UNPUBLISHED_PREFIX in text for part in ("assets", "links") for text in texts_in(case.item.get(part)))
    if found:
        yield Breach("item-address", "item", "no address of what is not published", f"{found} of them")


def item_states_place_precision(case: Case) -> Iterator[Breach]:
    size = case.item["properties"].get("anon:size")
    if not _is_number(size) or not size + _ROUNDING >= _required_size(case):
        expected = "the side of a box that holds the true place of everything published with one, in degrees"
        yield Breach("item-size", "item: anon:size", expected, "less" if _is_number(size) else "no number")


def no_digest_of_original_is_published(case: Case) -> Iterator[Breach]:
    """A digest lets anyone who can guess the rest of the original test guesses of its secrets."""
    parts = [(name, part) for name in _DIGEST_ALGORITHMS for part in (case.evidence.original, case.evidence.crosswalk)]
    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        digests = [text for spellings in pool.map(_encoded_digests, parts) for text in spellings]
    for subject, documents in (
        ("item", [case.item]),
        ("documents", [*case.documents, *case.evidence.documents, *case.evidence.records]),
    ):
        texts = [text for document in documents for text in texts_in(document)]
        found = sum(any(one in text or one in text.lower() for one in digests) for text in texts)
        if found:
            yield Breach("leak-digest", subject, "no digest of what is not published", f"{found} of them")


def _asset(case: Case, name: str) -> Mapping[str, Any]:
    assets = case.item.get("assets")
    asset = assets.get(name) if isinstance(assets, dict) else None
    return asset if isinstance(asset, dict) else {}


def _describes(asset: Mapping[str, Any], data: bytes, ending: str) -> bool:
    digest = hashlib.sha256(data).hexdigest()
    href = asset.get("href")
    named = isinstance(href, str) and href.endswith(f"/{digest}.{ending}")
    return (
        named
        and asset.get("file:checksum") == _SHA256_MULTIHASH_PREFIX + digest
        and asset.get("file:size") == len(data)
    )


def _required_size(case: Case) -> float:
    """Uses the shortest degree of longitude, where the extent is farthest from the equator."""
    largest = pc.max(case.published.column("uncertainty_m")).as_py()
    if largest is None:
        return _WHOLE_GLOBE_DEGREES if case.published.num_rows else 0.0
    extent = case.dataset.extent
    farthest = max(abs(extent.south), abs(extent.north)) if extent is not None else 90.0
    shortest = _METRES_IN_A_DEGREE * math.cos(math.radians(farthest))
    return min(2 * float(largest) / max(shortest, 1.0), _WHOLE_GLOBE_DEGREES)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _encoded_digests(part: tuple[str, bytes]) -> list[str]:
    name, data = part
    digest = hashlib.new(name, data, usedforsecurity=False).digest()
    spelt = (base64.b64encode(digest), base64.urlsafe_b64encode(digest))
    return [digest.hex(), *(text.decode().rstrip("=") for text in spelt)]


RULES = (
    item_describes_data,
    item_describes_provenance,
    item_links_only_published,
    item_states_place_precision,
    no_digest_of_original_is_published,
)

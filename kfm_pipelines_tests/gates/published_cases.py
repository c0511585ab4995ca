"""For every rule about what is published, a key that is as it was recorded and one that is not."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kfm_pipelines.gates.published import PublishedSubject, Recorded
from kfm_pipelines_tests.gates.case import Case

BYTES, NOTE = b"what is published", b"where it came from"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _asset(data: bytes, **said: Any) -> dict[str, Any]:
    return {"file:size": len(data), "file:checksum": f"1220{sha256(data)}", **said}


def published(**said_of_data: Any) -> PublishedSubject:
    """A published key whose Item was recorded like this, so that only what it says can be wrong."""
    content_path = f"objects/{sha256(BYTES)}.parquet"
    assets = {"data": _asset(BYTES, href=f"../{content_path}") | said_of_data, "provenance": _asset(NOTE)}
    item = json.dumps({"assets": assets}).encode()
    recorded = Recorded("a:b:c:d:e", sha256(BYTES), sha256(item), content_path, "processed/a.parquet", "items/a.json")
    return PublishedSubject(recorded, item, BYTES, sha256(BYTES), {"provenance": (len(NOTE), sha256(NOTE))})


GOOD = published()

PUBLISHED_CASES: Sequence[Case[PublishedSubject]] = (
    Case("published-item-present", GOOD, replace(GOOD, item=None)),
    Case("published-digest", GOOD, replace(GOOD, processed_hash="0" * 64)),
    Case("published-digest", GOOD, replace(GOOD, processed_hash=None)),
    Case("published-digest", GOOD, replace(GOOD, content=None)),
    Case("published-digest", GOOD, replace(GOOD, item=GOOD.item + b" " if GOOD.item else b"")),
    Case("published-item-agrees", GOOD, published(**{"file:size": 1})),
    Case("published-item-agrees", GOOD, published(**{"file:checksum": sha256(BYTES)})),
    Case("published-item-agrees", GOOD, published(href="../elsewhere.parquet")),
    Case("published-item-agrees", GOOD, replace(GOOD, documents={"provenance": None})),
    Case("published-item-agrees", GOOD, replace(GOOD, documents={"provenance": (len(NOTE), "0" * 64)})),
)

"""What an Item says of itself and of its files, read so that one that somebody has changed by hand says nothing."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def read_item(data: bytes | None) -> Mapping[str, Any]:
    """Empty when it cannot be read, which then agrees with nothing."""
    try:
        item = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return {}
    return item if isinstance(item, dict) else {}


def asset_of(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    assets = item.get("assets")
    asset = assets.get(name) if isinstance(assets, dict) else None
    return asset if isinstance(asset, dict) else {}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

"""JSON documents as bytes: sorted, indented, UTF-8, so that equal documents are equal files."""

import json
from collections.abc import Mapping


def document_bytes(document: Mapping[str, object]) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()

"""Seals: what vouches for documents that change, such as collections and pages.

Data, provenance, manifest and Item are subjects of an attestation. Everything else in the catalog is written again and
again, so it carries its own signature, in the one file that is replaced in one step: `kfm:seal` is over the path and
the whole document but for itself. What is not JSON has a sealed document beside it that tells its digest.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.trust.keys import PublicKey, Signer
from kfm_pipelines.errors import IntegrityBroken, SignatureRefused

FIELD = "kfm:seal"
SIDECAR = ".seal.json"  # behind the name of what is not JSON
_KIND = "ed25519"
# In front of what is signed, so that no seal can ever pass as another signature of the same key.
_DOMAIN = b"kfm-seal-1\n"


def seal_document(path: str, document: bytes, signer: Signer) -> bytes:
    """The document, signed as the one at this path of the store."""
    content = {name: value for name, value in json.loads(document).items() if name != FIELD}
    signature = base64.b64encode(signer.sign(_bytes_to_sign(path, content))).decode()
    return document_bytes({**content, FIELD: f"{_KIND}:{signer.public.key_id}:{signature}"})


def sidecar_document(path: str, digest: str, size: int, signer: Signer) -> bytes:
    """The sealed document for `path + SIDECAR`."""
    document = {"kind": "kfm-seal", "version": 1, "path": path, "sha256": digest, "size": size}
    return seal_document(path + SIDECAR, document_bytes(document), signer)


def open_sealed(path: str, data: bytes, keys: Mapping[str, PublicKey]) -> tuple[dict[str, Any], PublicKey]:
    """The document and whose seal is on it; SignatureRefused or IntegrityBroken, naming the file, for any other."""
    try:
        document = json.loads(data)
        kind, key_id, signature = document[FIELD].split(":")
        signed = base64.b64decode(signature, validate=True)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        raise IntegrityBroken(f"{path} is not JSON with a seal") from None
    if document_bytes(document) != data:
        raise IntegrityBroken(f"{path} is not written as it was sealed")
    if kind != _KIND or key_id not in keys:
        raise SignatureRefused(f"{path} is sealed with key {key_id[:16]}, which is not known here")
    content = {name: value for name, value in document.items() if name != FIELD}
    if not keys[key_id].verify(signed, _bytes_to_sign(path, content)):
        raise SignatureRefused(f"{path} is not what was sealed")
    return document, keys[key_id]


def _bytes_to_sign(path: str, content: Mapping[str, Any]) -> bytes:
    return _DOMAIN + path.encode() + b"\n" + document_bytes(content)

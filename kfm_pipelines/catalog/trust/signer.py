"""Ed25519 keys. `kfm:seal` signs a rewritten document with its path; other files have a sealed sidecar."""

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kfm_pipelines.care.signatures import create_private_key, read_private_key
from kfm_pipelines.catalog.documents import document_bytes, sha256
from kfm_pipelines.errors import IntegrityBroken, SettingsInvalid, SignatureRefused
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, default_signing_key
from kfm_pipelines.stores.layout import CATALOG, public_key, raise_failure

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from securesystemslib.signer._crypto_signer import CryptoSigner
    from securesystemslib.signer._key import SSlibKey

FIELD = "kfm:seal"
SIDECAR = ".seal.json"  # appended to the name of a file that is not JSON
_KIND = "ed25519"
_DOMAIN = b"kfm-seal-1\n"  # signed in front, so that no seal can pass for another signature of the same key
_BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----\n?", re.DOTALL)


@dataclass(frozen=True)
class PublicKey:
    key: "Ed25519PublicKey"

    @cached_property
    def envelope_key(self) -> "SSlibKey":
        from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # not in its __all__

        return SSlibKey.from_crypto(self.key)

    @property
    def key_id(self) -> str:
        """Returns the id by the convention of in-toto and TUF."""
        return self.envelope_key.keyid

    @property
    def pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def verify(self, signature: bytes, data: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Signer:
    private_key: "Ed25519PrivateKey"

    def __repr__(self) -> str:  # never the private key
        return f"Signer({self.public.key_id})"

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self.private_key.public_key())

    @cached_property
    def envelope_signer(self) -> "CryptoSigner":
        from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # not in its __all__

        return CryptoSigner(self.private_key, self.public.envelope_key)

    def sign(self, data: bytes) -> bytes:
        return self.private_key.sign(data)


def load_signer(settings: Settings) -> Signer:
    """Loads the signing key, and creates the default one. Raises SettingsInvalid, naming the variable."""
    path = settings.signing_key
    try:
        if not path.exists() and path == default_signing_key(settings.home):
            _create_key(path)
        return Signer(read_private_key(path))
    except SignatureRefused as error:
        raise SettingsInvalid(f"KFM_SIGNING_KEY: {error}") from None
    except OSError as error:
        raise SettingsInvalid(f"KFM_SIGNING_KEY: {path.name} cannot be used: {error.strerror}") from None


def signer_of(services: Services) -> Signer:
    return services.load_once("signer", lambda: load_signer(services.settings))


def read_public_keys(pem: bytes, name: str) -> list[PublicKey]:
    """Reads every key in a PEM file; earlier keys are still needed for what they signed."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY-----" in pem:
        raise SignatureRefused(f"{name} holds a private key; give the public one, and keep this one to yourself")
    try:
        keys = [load_pem_public_key(block) for block in _BLOCK.findall(pem)]
    except (ValueError, UnsupportedAlgorithm):
        raise SignatureRefused(f"{name} holds a public key that cannot be read") from None
    if not keys:
        raise SignatureRefused(f"{name} holds no public key in PEM form")
    if not all(isinstance(key, Ed25519PublicKey) for key in keys):
        raise SignatureRefused(f"{name} holds another kind of key than Ed25519")
    return [PublicKey(key) for key in keys if isinstance(key, Ed25519PublicKey)]


def seal_document(path: str, document: bytes, signer: Signer) -> bytes:
    content = {name: value for name, value in json.loads(document).items() if name != FIELD}
    signature = base64.b64encode(signer.sign(_bytes_to_sign(path, content))).decode()
    return document_bytes({**content, FIELD: f"{_KIND}:{signer.public.key_id}:{signature}"})


def open_sealed(path: str, data: bytes, keys: Mapping[str, PublicKey]) -> tuple[dict[str, Any], PublicKey]:
    """Returns the document and the key of its seal. Raises IntegrityBroken or SignatureRefused, naming the file."""
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


def seal_for(services: Services, path: str, document: bytes) -> bytes:
    _announce_key(services, path)
    return seal_document(path, document, signer_of(services))


def write_sealed(services: Services, path: str, document: bytes) -> None:
    services.store.write(path, seal_for(services, path, document))


def update_sealed(services: Services, documents: Mapping[str, bytes]) -> None:
    """Writes those documents that changed; they are often the same as before."""
    _write_changed(services, {path: seal_for(services, path, document) for path, document in documents.items()})


def write_with_sidecar(services: Services, path: str, data: bytes) -> None:
    """Writes a file that cannot carry a seal, and its sidecar."""
    _write_changed(services, {path: data})
    sidecar = {"kind": "kfm-seal", "version": 1, "path": path, "sha256": sha256(data), "size": len(data)}
    update_sealed(services, {path + SIDECAR: document_bytes(sidecar)})


def _bytes_to_sign(path: str, content: Mapping[str, Any]) -> bytes:
    return _DOMAIN + path.encode() + b"\n" + document_bytes(content)


def _write_changed(services: Services, files: Mapping[str, bytes]) -> None:
    present = services.store.read_all(files)
    changed = {path: data for path, data in files.items() if present.get(path) != data}
    raise_failure(services.store.write_all(changed))


def _announce_key(services: Services, path: str) -> None:
    """Publishes the key before the first seal in the catalog that needs it."""
    if path.startswith(f"{CATALOG}/"):
        public = signer_of(services).public
        services.store.create_shared(public_key(public.key_id), public.pem)


def _create_key(path: Path) -> None:
    """Creates the key in one step, so that two processes starting at once both use the first one's."""
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
    create_private_key(unfinished)
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return
    finally:
        unfinished.unlink()

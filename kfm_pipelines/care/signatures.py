"""Ed25519 signatures over the canonical JSON of a decision. `governance` decides who may sign."""

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rfc8785

from kfm_pipelines.errors import SignatureRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# Prefixed to what is signed, so that no other document can pass for a statement.
_DOMAIN = b"kfm-statement-1\n"


@dataclass(frozen=True, slots=True)
class SignedStatement:
    statement: Mapping[str, Any]
    key_id: str
    signature: str  # base64


def sign(statement: Mapping[str, Any], private_key: "Ed25519PrivateKey") -> SignedStatement:
    signature = private_key.sign(_signed_bytes(statement))
    return SignedStatement(dict(statement), key_id_of(public_key_of(private_key)), base64.b64encode(signature).decode())


def refuse_unless_signed(signed: SignedStatement, public_key: str) -> None:
    """Raises SignatureRefused unless the key signed exactly this statement."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signed.signature, validate=True), _signed_bytes(signed.statement))
    except (InvalidSignature, ValueError, binascii.Error):
        raise SignatureRefused(f"the signature of key {signed.key_id} does not match the statement") from None


def public_key_of(private_key: "Ed25519PrivateKey") -> str:
    return base64.b64encode(private_key.public_key().public_bytes_raw()).decode()


def key_id_of(public_key: str) -> str:
    return hashlib.sha256(base64.b64decode(public_key)).hexdigest()[:16]


def create_private_key(path: Path) -> "Ed25519PrivateKey":
    """Creates a key in a new file that only its owner can read."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        if path.exists():
            raise SignatureRefused(f"{path.name} exists; a key is never overwritten") from None
        raise SignatureRefused(f"{path.name} cannot be written: {error.filename}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    return key


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """Raises SignatureRefused when others can read the file, or it holds no Ed25519 key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if path.stat().st_mode & 0o077:
            raise SignatureRefused(f"{path.name} can be read by others; run chmod 600 first")
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SignatureRefused(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SignatureRefused(f"{path.name} holds no private key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureRefused(f"{path.name} holds another kind of key than Ed25519")
    return key


def _signed_bytes(statement: Mapping[str, Any]) -> bytes:
    return _DOMAIN + rfc8785.dumps(dict(statement))


@dataclass(frozen=True, slots=True)
class Signature(SignedStatement):
    """A statement as stored: with its signer and their authority."""

    authority: str
    holder: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Signature":
        return cls(**{one.name: row[one.name] for one in fields(cls)})

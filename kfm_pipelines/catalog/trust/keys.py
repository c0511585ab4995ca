"""Keys that documents are signed with and checked against: Ed25519, named as in-toto and TUF name them."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kfm_pipelines.errors import SignatureRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from securesystemslib.signer._crypto_signer import CryptoSigner
    from securesystemslib.signer._key import SSlibKey

_BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----\n?", re.DOTALL)


@dataclass(frozen=True)
class PublicKey:
    """Who may have signed. Whoever has it can check, and nobody can sign with it."""

    key: "Ed25519PublicKey"

    @cached_property
    def envelope_key(self) -> "SSlibKey":
        from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # not in its __all__

        return SSlibKey.from_crypto(self.key)

    @property
    def key_id(self) -> str:
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
    """The private half; never shown, not even by accident."""

    private_key: "Ed25519PrivateKey"

    def __repr__(self) -> str:
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


def read_public_keys(pem: bytes, name: str) -> list[PublicKey]:
    """Every key in a PEM file: one that was replaced has still signed what it signed."""
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

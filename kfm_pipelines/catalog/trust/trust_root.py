"""Trusted public keys. One stored with the documents proves only that they belong together."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kfm_pipelines.care.signatures import read_private_key
from kfm_pipelines.catalog.trust.signer import PublicKey, Signer, read_public_keys
from kfm_pipelines.errors import KfmError, SettingsInvalid, SignatureRefused
from kfm_pipelines.stores import Store
from kfm_pipelines.stores.layout import KEYS


class PublicKeyOrigin(StrEnum):
    GIVEN = "given"
    OWN = "own signing key"
    FOUND = "found in the store"


@dataclass(frozen=True)
class TrustRoot:
    """Public keys and their origins by id. `used` collects the keys that verified a signature."""

    keys: Mapping[str, PublicKey]
    origins: Mapping[str, PublicKeyOrigin]
    used: set[str] = field(default_factory=set)

    @property
    def proves_origin(self) -> bool:
        """Returns whether no signature was by a key stored with what it signs."""
        return bool(self.used) and all(self.origins[key_id] is not PublicKeyOrigin.FOUND for key_id in self.used)


def load_trust_root(store: Store, signing_key: Path, given: Path | None) -> TrustRoot:
    """Returns only the given keys; without any, the signing key of this machine and the keys in the store."""
    if given is not None:
        try:
            keys = read_public_keys(given.read_bytes(), given.name)
        except OSError as error:
            raise SettingsInvalid(f"{given} cannot be read: {error.strerror}") from None
        return TrustRoot({key.key_id: key for key in keys}, {key.key_id: PublicKeyOrigin.GIVEN for key in keys})
    found = _keys_in_store(store)
    origins = dict.fromkeys(found, PublicKeyOrigin.FOUND)
    with suppress(SignatureRefused):  # this machine may have no signing key
        own = Signer(read_private_key(signing_key)).public
        found[own.key_id], origins[own.key_id] = own, PublicKeyOrigin.OWN
    return TrustRoot(found, origins)


def _keys_in_store(store: Store) -> dict[str, PublicKey]:
    """Ignores unreadable keys; the check of every file reports those."""
    found: dict[str, PublicKey] = {}
    for path in store.paths(KEYS):
        with suppress(KfmError, OSError):
            found |= {key.key_id: key for key in read_public_keys(store.read(path), path)}
    return found

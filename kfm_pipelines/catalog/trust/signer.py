"""The key that releases are signed with: given, or made once for this home; and seals under it."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from kfm_pipelines.care.signatures import create_private_key, read_private_key
from kfm_pipelines.catalog.trust.keys import Signer
from kfm_pipelines.catalog.trust.seal import SIDECAR, sealed, sidecar
from kfm_pipelines.errors import SettingsInvalid, SignatureRefused
from kfm_pipelines.settings import Settings, default_signing_key
from kfm_pipelines.stores.layout import CATALOG, public_key

if TYPE_CHECKING:
    from kfm_pipelines.services import Workshop


def load_signer(settings: Settings) -> Signer:
    """SettingsInvalid, naming the variable, where there is no key that can sign."""
    path = settings.signing_key
    try:
        if not path.exists() and path == default_signing_key(settings.home):
            _create(path)
        return Signer(read_private_key(path))
    except SignatureRefused as error:
        raise SettingsInvalid(f"KFM_SIGNING_KEY: {error}") from None
    except OSError as error:
        raise SettingsInvalid(f"KFM_SIGNING_KEY: {path.name} cannot be used: {error.strerror}") from None


def write_sealed(workshop: "Workshop", path: str, document: bytes) -> None:
    """Write a JSON document of the catalog that changes, unless it is there already."""
    _write_if_new(workshop, path, sealed(path, document, workshop.signer))


def write_with_seal(workshop: "Workshop", path: str, data: bytes) -> None:
    """Write a file of the catalog that must stay as it is, or is not JSON, and its seal beside it."""
    _write_if_new(workshop, path, data)
    seal = sidecar(path, hashlib.sha256(data).hexdigest(), len(data), workshop.signer)
    _write_if_new(workshop, path + SIDECAR, seal)


def _write_if_new(workshop: "Workshop", path: str, data: bytes) -> None:
    if path.startswith(f"{CATALOG}/"):
        _announce(workshop)
    if workshop.store.digest(path) != hashlib.sha256(data).hexdigest():
        workshop.store.write(path, data)


def _announce(workshop: "Workshop") -> None:
    """No seal in the catalog without the key that it can be checked with."""
    public = workshop.signer.public
    path = public_key(public.key_id)
    if path not in workshop.announced:
        if not workshop.store.exists(path):
            workshop.store.write(path, public.pem)
        workshop.announced.add(path)


def _create(path: Path) -> None:
    """Under its name in one step, so that of two processes that come at once both have the key of the first."""
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
    create_private_key(unfinished)
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return
    finally:
        unfinished.unlink()

"""The key that releases are signed with: given, or made once for this home; and seals under it."""

import hashlib
import os
from pathlib import Path
from uuid import uuid4

from kfm_pipelines.care.signatures import create_private_key, read_private_key
from kfm_pipelines.catalog.trust.keys import Signer
from kfm_pipelines.catalog.trust.seal import SIDECAR, seal_document, sidecar_document
from kfm_pipelines.errors import SettingsInvalid, SignatureRefused
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, default_signing_key
from kfm_pipelines.stores.layout import CATALOG, public_key


def load_signer(settings: Settings) -> Signer:
    """SettingsInvalid, naming the variable, where there is no key that can sign."""
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


def write_sealed(services: Services, path: str, document: bytes) -> None:
    """Write a JSON document of the catalog that changes, unless it is there already."""
    _write_if_changed(services, path, seal_document(path, document, signer_of(services)))


def write_with_sidecar(services: Services, path: str, data: bytes) -> None:
    """Write a file of the catalog that must stay as it is, or is not JSON, and its seal beside it."""
    _write_if_changed(services, path, data)
    seal = sidecar_document(path, hashlib.sha256(data).hexdigest(), len(data), signer_of(services))
    _write_if_changed(services, path + SIDECAR, seal)


def _write_if_changed(services: Services, path: str, data: bytes) -> None:
    if path.startswith(f"{CATALOG}/"):
        _write_public_key(services)
    if services.store.digest(path) != hashlib.sha256(data).hexdigest():
        services.store.write(path, data)


def _write_public_key(services: Services) -> None:
    """No seal in the catalog without the key that it can be checked with."""
    public = signer_of(services).public
    path = public_key(public.key_id)

    def announce() -> None:
        if not services.store.exists(path):
            services.store.write(path, public.pem)

    services.load_once(("public key", path), announce)


def _create_key(path: Path) -> None:
    """Under its name in one step, so that of two processes that come at once both have the key of the first."""
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
    create_private_key(unfinished)
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return
    finally:
        unfinished.unlink()

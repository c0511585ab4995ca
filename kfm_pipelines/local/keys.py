"""Creates local secrets and reviewers' keys in {home}/care, once. Never replaces configured ones."""

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from kfm_pipelines.care.governance import Authority, load_authorities
from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.signatures import create_private_key, public_key_of, read_private_key
from kfm_pipelines.errors import KfmError, SettingsInvalid
from kfm_pipelines.local.private_files import make_private_folder, write_private
from kfm_pipelines.settings import care_variable, resources_directory

KEY_VALIDITY_YEARS = 10


def care_environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that are not set yet, and creates what they point to."""
    resources = resources_directory(environ)
    try:
        with _lock_folder(home / "care") as folder:
            found = _ensure_secrets(resources, folder, environ)
            if not environ.get("KFM_AUTHORITIES"):
                found["KFM_AUTHORITIES"] = str(_ensure_reviewer_keys(resources, folder))
    except OSError as error:
        raise SettingsInvalid(f"{error.filename or home / 'care'} cannot be used: {error.strerror}") from None
    return found


@contextmanager
def _lock_folder(folder: Path) -> Iterator[Path]:
    """Makes the folder private and keeps other processes from writing to it."""
    make_private_folder(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)


def _ensure_secrets(resources: Path, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    if environ.get("KFM_CARE_SECRETS", "environment") not in ("", "environment"):
        return {}
    wanted = {care_variable(key_id): folder / f"{key_id}.secret" for key_id in _read_key_ids(resources)}
    return {variable: _ensure_secret(path) for variable, path in wanted.items() if not environ.get(variable)}


def _read_key_ids(resources: Path) -> list[str]:
    """Returns the key ids of all readable policies; an unreadable one is reported when it is used."""
    found = set()
    for path in (resources / "policies").glob("*.yaml"):
        with suppress(KfmError):
            found.add(load_policy(resources, path.stem).key_id)
    return sorted(key_id for key_id in found if key_id)


def _ensure_secret(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    path.chmod(0o600)
    return path.read_text()


def _ensure_reviewer_keys(resources: Path, folder: Path) -> Path:
    """Creates a key pair for every authority; returns the folder of the public halves."""
    public, private = folder / "authorities", folder / "reviewers"
    make_private_folder(public)
    make_private_folder(private)
    with suppress(KfmError):  # an unreadable authority is reported when it is used
        authorities = load_authorities(resources)
        for authority in authorities.values():
            name = authority.authority
            _ensure_reviewer_key(authority, public / f"{name}.yaml", private / f"{name}.pem")
        for path in public.glob("*.yaml"):
            if path.stem not in authorities:  # only authorities in the reviewed files may have keys
                path.unlink()
    return public


def _ensure_reviewer_key(authority: Authority, public: Path, private: Path) -> None:
    if private.exists():
        private.chmod(0o600)
    if private.exists() and public.exists():
        return
    keys = yaml.safe_load(public.read_text())["keys"] if public.exists() else []
    if not private.exists():
        unfinished = private.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        create_private_key(unfinished)
        unfinished.replace(private)
    today = datetime.now(UTC).date()
    valid = {"valid_from": today - timedelta(days=1), "valid_until": today + timedelta(days=365 * KEY_VALIDITY_YEARS)}
    key = {"holder": "Reviewer on this machine", "public_key": public_key_of(read_private_key(private)), **valid}
    # Signatures made with an earlier key stay valid.
    write_private(public, yaml.safe_dump({**authority.model_dump(), "keys": [*keys, key]}, sort_keys=False))

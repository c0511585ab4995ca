"""What masking and reviews need on a machine of one's own: a secret for every policy, and a reviewer's key for every
authority. Made once, kept in {home}/care for its owner alone, and never used when somebody has given real ones."""

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
from kfm_pipelines.settings import care_variable, resources_directory

KEY_VALIDITY_YEARS = 10


def care_environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that nobody has given, and what they point to."""
    resources = resources_directory(environ)
    try:
        with _lock_folder(home / "care") as folder:
            found = _ensure_secrets(resources, folder, environ)
            if not environ.get("KFM_AUTHORITIES"):
                found["KFM_AUTHORITIES"] = str(_ensure_reviewer_keys(resources, folder))
    except OSError as error:
        raise SettingsInvalid(f"{error.filename or home / 'care'} cannot be used: {error.strerror}") from None
    return found


def reviewer_key(home: Path, authority: str) -> Path:
    """The private key that stands for this authority on the embedded stack."""
    return home / "care" / "reviewers" / f"{authority}.pem"


@contextmanager
def _lock_folder(folder: Path) -> Iterator[Path]:
    """The folder, closed to everybody else, and ours alone as long as we may write to it."""
    _make_private_folder(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)


def _make_private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _ensure_secrets(resources: Path, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    if environ.get("KFM_CARE_SECRETS", "environment") not in ("", "environment"):
        return {}
    wanted = {care_variable(key_id): folder / f"{key_id}.secret" for key_id in _read_key_ids(resources)}
    return {variable: _ensure_secret(path) for variable, path in wanted.items() if not environ.get(variable)}


def _read_key_ids(resources: Path) -> list[str]:
    """Of every policy that can be read; what is wrong with another is said when it is used."""
    found = set()
    for path in (resources / "policies").glob("*.yaml"):
        with suppress(KfmError):
            found.add(load_policy(resources, path.stem).key_id)
    return sorted(key_id for key_id in found if key_id)


def _ensure_secret(path: Path) -> str:
    if not path.exists():
        _write_atomically(path, secrets.token_hex(32))
    path.chmod(0o600)
    return path.read_text()


def _ensure_reviewer_keys(resources: Path, folder: Path) -> Path:
    """A folder with the public half of a key for every authority; the private ones are beside it."""
    public, private = folder / "authorities", folder / "reviewers"
    _make_private_folder(public)
    _make_private_folder(private)
    with suppress(KfmError):  # an authority that cannot be read is said when it is used
        authorities = load_authorities(resources)
        for authority in authorities.values():
            _ensure_reviewer_key(
                authority, public / f"{authority.authority}.yaml", private / f"{authority.authority}.pem"
            )
        for path in public.glob("*.yaml"):
            if path.stem not in authorities:  # nobody may have keys whom the reviewed files do not name
                path.unlink()
    return public


def _ensure_reviewer_key(authority: Authority, public: Path, private: Path) -> None:
    if private.exists():
        private.chmod(0o600)
    if private.exists() and public.exists():
        return
    keys = yaml.safe_load(public.read_text())["keys"] if public.exists() else []
    if not private.exists():
        _create_key_file(private)
    today = datetime.now(UTC).date()
    valid = {"valid_from": today - timedelta(days=1), "valid_until": today + timedelta(days=365 * KEY_VALIDITY_YEARS)}
    key = {"holder": "Reviewer on this machine", "public_key": public_key_of(read_private_key(private)), **valid}
    # What an earlier key has signed still counts.
    _write_atomically(public, yaml.safe_dump({**authority.model_dump(), "keys": [*keys, key]}, sort_keys=False))


def _create_key_file(private: Path) -> None:
    unfinished = private.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    create_private_key(unfinished)
    unfinished.replace(private)


def _write_atomically(path: Path, text: str) -> None:
    """In one step: whoever is stopped halfway leaves nothing that looks whole."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    unfinished.write_text(text)
    unfinished.replace(path)

"""What masking and reviews need on a machine of one's own: a secret for every policy, and a reviewer's key for every
authority. Made once, kept in {home}/care for its owner alone, and never used when somebody has given real ones."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import yaml

from kfm_pipelines.care.authorities import load_authorities
from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.signatures import create_private_key, public_key_of, read_private_key
from kfm_pipelines.errors import KfmError, SignatureRefused
from kfm_pipelines.settings import care_variable, resources_directory

YEARS = 10


def care_environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    resources = resources_directory(environ)
    folder = home / "care"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = {care_variable(key_id): _secret(folder / f"{key_id}.secret") for key_id in _key_ids(resources)}
    if not environ.get("KFM_AUTHORITIES"):
        _give_keys(resources, folder)
        found["KFM_AUTHORITIES"] = str(folder / "authorities")
    return {name: value for name, value in found.items() if not environ.get(name)}


def reviewer_key(home: Path, authority: str) -> Path:
    """The private key that stands for this authority on the embedded stack."""
    return home / "care" / "reviewers" / f"{authority}.pem"


def _key_ids(resources: Path) -> list[str]:
    """Of every policy that can be read; what is wrong with another is said when it is used."""
    found = set()
    for path in (resources / "policies").glob("*.yaml"):
        with suppress(KfmError):
            found.add(load_policy(resources, path.stem).key_id)
    return sorted(key_id for key_id in found if key_id)


def _secret(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path.read_text()


def _give_keys(resources: Path, folder: Path) -> None:
    (folder / "authorities").mkdir(mode=0o700, exist_ok=True)
    for authority in load_authorities(resources).values():
        public = folder / "authorities" / f"{authority.authority}.yaml"
        if not public.is_file():
            _write_key(public, folder / "reviewers" / f"{authority.authority}.pem", authority.model_dump())


def _write_key(public: Path, private: Path, authority: dict[str, object]) -> None:
    try:
        key = create_private_key(private)
    except SignatureRefused:
        key = read_private_key(private)
    today = date.today()  # noqa: DTZ011 - a key's validity is in days, wherever one is
    valid = {"valid_from": today - timedelta(days=1), "valid_until": today + timedelta(days=365 * YEARS)}
    keys = [{"holder": "Reviewer on this machine", "public_key": public_key_of(key), **valid}]
    unfinished = public.with_suffix(".unfinished")
    unfinished.write_text(yaml.safe_dump({**authority, "keys": keys}, sort_keys=False))
    unfinished.replace(public)

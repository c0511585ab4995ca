"""Authorities: who may decide about a dataset's releases, by name and public keys. One YAML file each.

The reviewed files are in resources/authorities. A second folder may add keys to them, for an installation that keeps
its keys elsewhere; it cannot add an authority that the reviewed files do not name.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from kfm_pipelines.care.signatures import SignedStatement, key_id_of, refuse_unless_signed
from kfm_pipelines.declarations import DeclarationModel, KeyPart, NonEmptyText
from kfm_pipelines.declarations.dataset import format_validation_error, read_yaml
from kfm_pipelines.errors import DeclarationInvalid, PolicyRefused, SignatureRefused

if TYPE_CHECKING:
    from kfm_pipelines.care.policies import Policy


def _check_public_key(text: str) -> str:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise ValueError("must be an Ed25519 public key, 32 bytes in base64")
    return text


class AuthorityKey(DeclarationModel):
    """One person's key, and for how long it counts."""

    holder: NonEmptyText
    public_key: Annotated[str, AfterValidator(_check_public_key)]
    valid_from: date
    valid_until: date


class Authority(DeclarationModel):
    authority: KeyPart
    name: NonEmptyText
    kind: Literal["steward", "sovereign", "agency"]
    keys: list[AuthorityKey] = Field(default_factory=list)

    def holder_of(self, signed: SignedStatement, today: date) -> str:
        """Who signed; SignatureRefused unless one of our keys did, and still counts."""
        for key in self.keys:
            if key_id_of(key.public_key) == signed.key_id:
                if not key.valid_from <= today <= key.valid_until:
                    raise SignatureRefused(f"key {signed.key_id} of {self.authority} does not count on {today}")
                refuse_unless_signed(signed, key.public_key)
                return key.holder
        raise SignatureRefused(f"key {signed.key_id} is none of {self.authority}'s")


def load_authorities(resources: Path, more_keys: Path | None = None) -> Mapping[str, Authority]:
    authorities = {one.authority: one for one in _read_folder(resources / "authorities")}
    for more in _read_folder(more_keys) if more_keys else []:
        known = authorities.get(more.authority)
        if known is None:
            raise DeclarationInvalid(f"{more.authority}: is no authority in resources/authorities; it gets no keys")
        authorities[more.authority] = known.model_copy(update={"keys": [*known.keys, *more.keys]})
    return authorities


def authority_of(policy: "Policy", authorities: Mapping[str, Authority]) -> Authority:
    """Who decides under this policy; PolicyRefused when it names somebody unknown."""
    try:
        return authorities[policy.authority]
    except KeyError:
        raise PolicyRefused(
            f"policy {policy.name} names the authority {policy.authority!r}, whom nobody declared"
        ) from None


def _read_folder(folder: Path) -> list[Authority]:
    found = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found.append(Authority.model_validate(read_yaml(path)))
        except ValidationError as error:
            raise DeclarationInvalid(f"{path.name}: {format_validation_error(error)}") from None
        if found[-1].authority != path.stem:
            raise DeclarationInvalid(f"{path.name}: authority: must be {path.stem!r} like its file")
    return found

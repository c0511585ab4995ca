"""What governs a dataset's keys; any defect publishes nothing. Only reviewed files declare authorities."""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import rfc8785
from pydantic import AfterValidator, Field

from kfm_pipelines.care.footprints import Footprints, footprints_of
from kfm_pipelines.care.policies import Policy, load_policy, refuse_if_mismatched, refuse_unless_current
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.care.review.tables import decisions_about
from kfm_pipelines.care.secrets import key_check, secret_of
from kfm_pipelines.care.signatures import (
    Signature,
    SignedStatement,
    key_id_of,
    read_private_key,
    refuse_unless_signed,
    sign,
)
from kfm_pipelines.care.tables import Exemption, PolicyVersion, exemptions_of, register_version
from kfm_pipelines.care.upstreams import refuse_more_open
from kfm_pipelines.declarations import DeclarationModel, KeyPart, NonEmptyText, Table
from kfm_pipelines.declarations.areas import load_area
from kfm_pipelines.declarations.dataset import Dataset, load_model
from kfm_pipelines.errors import DeclarationInvalid, PolicyRefused, ReviewRefused, SignatureRefused
from kfm_pipelines.services import Services
from kfm_pipelines.text import redact_coordinates


def _check_public_key(text: str) -> str:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise ValueError("must be an Ed25519 public key, 32 bytes in base64")
    return text


class AuthorityKey(DeclarationModel):
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
        """Returns who signed. Raises SignatureRefused unless a valid key of this authority did."""
        for key in self.keys:
            if key_id_of(key.public_key) == signed.key_id:
                if not key.valid_from <= today <= key.valid_until:
                    raise SignatureRefused(f"key {signed.key_id} of {self.authority} is not valid on {today}")
                refuse_unless_signed(signed, key.public_key)
                return key.holder
        raise SignatureRefused(f"key {signed.key_id} does not belong to {self.authority}")


def load_authorities(resources: Path, more_keys: Path | None = None) -> Mapping[str, Authority]:
    authorities = {one.authority: one for one in _read_folder(resources / "authorities")}
    for more in _read_folder(more_keys) if more_keys else []:
        known = authorities.get(more.authority)
        if known is None:
            raise DeclarationInvalid(f"{more.authority}: is not an authority in resources/authorities")
        authorities[more.authority] = known.model_copy(update={"keys": [*known.keys, *more.keys]})
    return authorities


def authority_of(policy: Policy, authorities: Mapping[str, Authority]) -> Authority:
    """Returns who decides under this policy. Raises PolicyRefused when the authority is not declared."""
    try:
        return authorities[policy.authority]
    except KeyError:
        reason = f"names the authority {policy.authority!r}, whom nobody declared"
        raise PolicyRefused(f"policy {policy.name} {reason}") from None


def _read_folder(folder: Path) -> list[Authority]:
    found = []
    for path in sorted(folder.glob("*.yaml")):
        found.append(load_model(Authority, path))
        if found[-1].authority != path.stem:
            raise DeclarationInvalid(f"{path.name}: authority: must be {path.stem!r} like its file")
    return found


def policy_of(services: Services, dataset: Dataset) -> Policy:
    """Reads the policy once, so that every stage of a run uses the same one."""
    return services.load_once(
        ("policy", dataset.policy), lambda: load_policy(services.settings.resources, dataset.policy)
    )


def table_for_readers(services: Services, dataset: Dataset) -> Table:
    """Returns the table that the policy leaves for readers. Exemptions change no promise."""
    policy = policy_of(services, dataset)
    return dataset.table if policy.is_open else published_table(dataset, policy)


def authorities_of(services: Services) -> Mapping[str, Authority]:
    settings = services.settings
    return services.load_once("authorities", lambda: load_authorities(settings.resources, settings.authorities))


@dataclass(frozen=True, slots=True)
class Oversight:
    services: Services
    dataset: Dataset
    policy: Policy
    authority: Authority

    def sign(self, statement: dict[str, Any], private_key: Path) -> Signature:
        """Signs for the authority. Raises SignatureRefused for another key, ReviewRefused for places in the reason."""
        reason = str(statement.get("reason", ""))
        if redact_coordinates(reason) != reason:
            raise ReviewRefused("the reason seems to contain coordinates; many can read it, so leave them out")
        signed = sign(statement, read_private_key(private_key))
        holder = self.authority.holder_of(signed, self.services.today())
        return Signature(signed.statement, signed.key_id, signed.signature, self.authority.authority, holder)

    def refuse_forged(self, signed: Signature, expected: Mapping[str, str], what: str) -> None:
        """Raises SignatureRefused unless a key valid today signed exactly this row, whatever date it has."""
        if any(signed.statement.get(name) != value for name, value in expected.items()):
            raise SignatureRefused(f"{what} is not what was signed")
        try:
            self.authority.holder_of(signed, self.services.today())
        except SignatureRefused as error:
            raise SignatureRefused(f"{what} is not valid: {error}") from None

    def is_approved(self, key: str, release_digest: str) -> bool:
        """Returns False while a review is pending. Raises ReviewRefused after a rejection, which is final."""
        if self.dataset.review == "none":
            return True
        decisions = decisions_about(self.services.database, key, release_digest)
        for decision in decisions:
            expected = {"decision": decision.decision, "key": decision.key, "release": decision.release_digest}
            what = f"{decision.key}: the recorded review"
            self.refuse_forged(decision.signed, {"statement": "review", **expected}, what)
            if decision.decision == "rejected":
                reason = str(decision.signed.statement.get("reason", ""))
                raise ReviewRefused(f"{decision.key}: refused by {decision.signed.holder}: {reason}")
        return bool(decisions)


def oversight_of(services: Services, dataset: Dataset) -> Oversight:
    policy = policy_of(services, dataset)
    return Oversight(services, dataset, policy, authority_of(policy, authorities_of(services)))


@dataclass(frozen=True, slots=True)
class KeyRules:
    policy: Policy
    secret: bytes = field(repr=False)
    exemption: Exemption | None
    footprints: Footprints | None = None  # of a policy for rasters

    @property
    def masks(self) -> bool:
        return not self.policy.is_open and self.exemption is None

    @property
    def masking_status(self) -> Literal["masked", "exempted", "open"]:
        return "masked" if self.masks else "exempted" if self.exemption else "open"

    def published_table(self, dataset: Dataset) -> Table:
        return published_table(dataset, self.policy) if self.masks else dataset.table


@dataclass(frozen=True)
class Governance:
    """Everything that may apply to the keys of one dataset, read once per stage of a run."""

    oversight: Oversight
    secret: bytes = field(repr=False)
    exemptions: Sequence[Exemption]
    footprints: Footprints | None = None

    @property
    def policy(self) -> Policy:
        return self.oversight.policy

    @property
    def authority(self) -> Authority:
        return self.oversight.authority

    def rules_for(self, key: str) -> KeyRules:
        """Raises PolicyRefused when an exemption of this key has expired or is not what was signed."""
        exemption = self.exemption_for(key)
        if exemption is not None:
            self._refuse_if_invalid(exemption)
        return KeyRules(self.policy, self.secret, exemption, self.footprints)

    def exemption_for(self, keys: str) -> Exemption | None:
        """Returns the newest exemption that covers this key or prefix."""
        return next((one for one in self.exemptions if one.covers(keys)), None)

    def config_digest(self, key: str) -> str:
        """Changes with everything that affects the published bytes."""
        exemption = self.rules_for(key).exemption
        parts = ["kfm-config-2", self._declaration_digest, self.policy.digest, exemption.id if exemption else None]
        if self.footprints is not None:
            parts.append(self.footprints.digest)
        return hashlib.sha256(rfc8785.dumps(parts)).hexdigest()

    @cached_property
    def _declaration_digest(self) -> str:
        dataset = self.oversight.dataset
        if not dataset.uses_area:
            return dataset.digest
        area = load_area(self.oversight.services.settings.resources, dataset.key.aoi)
        return hashlib.sha256(rfc8785.dumps([dataset.digest, area.digest])).hexdigest()

    def _refuse_if_invalid(self, exemption: Exemption) -> None:
        expected = {
            "statement": "exemption",
            "exemption": exemption.id,
            "dataset": exemption.dataset,
            "policy": exemption.policy,
            "keys": exemption.key_prefix,
            "until": exemption.until.isoformat(),
        }
        try:
            self.oversight.refuse_forged(exemption.signed, expected, f"exemption {exemption.id}")
        except SignatureRefused as error:
            raise PolicyRefused(str(error)) from None
        if self.oversight.services.today() > exemption.until:
            raise PolicyRefused(
                f"exemption {exemption.id} from policy {exemption.policy} ran out on {exemption.until}; renew or end it"
            )
        if exemption.policy != self.policy.name:
            raise PolicyRefused(
                f"exemption {exemption.id} is from policy {exemption.policy}, not {self.policy.name}; renew or end it"
            )


def governance_of(services: Services, dataset: Dataset) -> Governance:
    oversight = oversight_of(services, dataset)
    policy = oversight.policy
    refuse_unless_current(policy, services.today())
    refuse_if_mismatched(policy, dataset)
    if dataset.input.upstream:
        refuse_more_open(dataset, policy, services.datasets, partial(policy_of, services))
    secret = secret_of(services, policy.key_id) if policy.key_id else b""
    register_version(services.database, policy_version(policy, secret), dataset.dataset)
    footprints = footprints_of(services, policy, secret) if policy.footprints else None
    return Governance(oversight, secret, exemptions_of(services.database, dataset.dataset), footprints)


def policy_version(policy: Policy, secret: bytes) -> PolicyVersion:
    check = key_check(secret) if policy.key_id else None
    return PolicyVersion(policy.policy, policy.version, policy.digest, policy.key_id, check)

"""What governs a dataset's keys now: its policy, the secret, and who has exempted what. Anything amiss publishes
nothing."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import rfc8785

from kfm_pipelines.care.authorities import Authority
from kfm_pipelines.care.policies import Policy, refuse_if_unfit, refuse_if_unsuited
from kfm_pipelines.care.published import published_table
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Table
from kfm_pipelines.errors import PolicyRefused, SignatureRefused
from kfm_pipelines.operations.care_secrets import key_check
from kfm_pipelines.operations.oversight import Oversight, oversight_of
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.exemptions import Exemption, exemptions_of
from kfm_pipelines.state.policy_versions import UsedPolicy, recognise


@dataclass(frozen=True, slots=True)
class Rules:
    """What applies to one key."""

    policy: Policy
    secret: bytes = field(repr=False)
    exemption: Exemption | None

    @property
    def masks(self) -> bool:
        return not self.policy.is_open and self.exemption is None

    @property
    def came_to(self) -> Literal["masked", "exempted", "open"]:
        return "masked" if self.masks else "exempted" if self.exemption else "open"

    def published(self, dataset: Dataset) -> Table:
        return published_table(dataset, self.policy) if self.masks else dataset.table


@dataclass(frozen=True, slots=True)
class Governance:
    """Everything that may apply to the keys of one dataset, read once for a stage of a run."""

    oversight: Oversight
    secret: bytes = field(repr=False)
    exemptions: Sequence[Exemption]

    @property
    def policy(self) -> Policy:
        return self.oversight.policy

    @property
    def authority(self) -> Authority:
        return self.oversight.authority

    def of(self, key: str) -> Rules:
        """PolicyRefused when an exemption of this key has run out, or is not what was signed."""
        exemption = self.exemption_of(key)
        if exemption is not None:
            self._refuse_if_unfit(exemption)
        return Rules(self.policy, self.secret, exemption)

    def exemption_of(self, keys: str) -> Exemption | None:
        """The one that decides about this key, or about all keys that begin like this: the newest."""
        return next((one for one in self.exemptions if one.covers(keys)), None)

    def config_digest(self, key: str) -> str:
        """Changes with anything reviewed or decided that shapes the published bytes."""
        exemption = self.of(key).exemption
        parts = ["kfm-config-2", self.oversight.dataset.digest, self.policy.digest, exemption.id if exemption else None]
        return hashlib.sha256(rfc8785.dumps(parts)).hexdigest()

    def _refuse_if_unfit(self, exemption: Exemption) -> None:
        try:
            self.oversight.refuse_forged(exemption.signed, _said(exemption), f"exemption {exemption.id}")
        except SignatureRefused as error:
            raise PolicyRefused(str(error)) from None
        if self.oversight.workshop.today() > exemption.until:
            raise PolicyRefused(
                f"exemption {exemption.id} from policy {exemption.policy} ran out on {exemption.until}; renew or end it"
            )
        if exemption.policy != self.policy.name:
            raise PolicyRefused(
                f"exemption {exemption.id} is from policy {exemption.policy}, not {self.policy.name}; renew or end it"
            )


def governance_of(workshop: Workshop, dataset: Dataset) -> Governance:
    oversight = oversight_of(workshop, dataset)
    policy = oversight.policy
    refuse_if_unfit(policy, workshop.today())
    refuse_if_unsuited(policy, dataset)
    secret = workshop.care_secret(policy.key_id) if policy.key_id else b""
    recognise(workshop.database, used_policy(policy, secret), dataset.dataset)
    return Governance(oversight, secret, exemptions_of(workshop.database, dataset.dataset))


def used_policy(policy: Policy, secret: bytes) -> UsedPolicy:
    check = key_check(secret) if policy.key_id else None
    return UsedPolicy(policy.policy, policy.version, policy.digest, policy.key_id, check)


def _said(exemption: Exemption) -> dict[str, str]:
    """The columns that are searched, as the signed statement has to say them."""
    return {
        "statement": "exemption",
        "exemption": exemption.id,
        "dataset": exemption.dataset,
        "policy": exemption.policy,
        "keys": exemption.key_prefix,
        "until": exemption.until.isoformat(),
    }

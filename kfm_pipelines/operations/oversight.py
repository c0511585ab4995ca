"""Who decides about a dataset, and under which policy: all that is needed to look at a release and to say no to it.

Nothing here asks whether the policy still counts or what its secret is: a reviewer must be able to refuse in any case.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfm_pipelines.care.authorities import Authority, authority_of
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.signatures import Signed, read_private_key, sign
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import ReviewRefused, SignatureRefused
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.plain_text import without_places
from kfm_pipelines.state.signed import Signature


@dataclass(frozen=True, slots=True)
class Oversight:
    workshop: Workshop
    dataset: Dataset
    policy: Policy
    authority: Authority

    def sign(self, statement: dict[str, Any], private_key: Path) -> Signature:
        """Sign for the authority; SignatureRefused when the key is none of theirs. What is signed is kept and shown, so
        its reason must not tell a place."""
        reason = str(statement.get("reason", ""))
        if without_places(reason) != reason:
            raise ReviewRefused(
                "the reason seems to tell a place; it is kept where many can read it, so leave that out"
            )
        signed = sign(statement, read_private_key(private_key))
        holder = self.authority.holder_of(signed, self.workshop.today())
        return Signature(signed.statement, self.authority.authority, holder, signed.key_id, signed.signature)

    def refuse_forged(self, signed: Signature, said: Mapping[str, str], what: str) -> None:
        """A row must be what was signed, by a key of the authority that still counts. When it was written does not
        matter: whoever writes rows could write any day."""
        if any(signed.statement.get(name) != value for name, value in said.items()):
            raise SignatureRefused(f"{what} is not what was signed")
        try:
            self.authority.holder_of(Signed(signed.statement, signed.key_id, signed.signature), self.workshop.today())
        except SignatureRefused as error:
            raise SignatureRefused(f"{what} is not valid: {error}") from None


def oversight_of(workshop: Workshop, dataset: Dataset) -> Oversight:
    policy = workshop.policy(dataset)
    return Oversight(workshop, dataset, policy, authority_of(policy, workshop.authorities))

"""Under what terms a key is worked on: the declaration it goes by, what governs it, and the promised schema.

Everything is today's, but for keys that are to be reproduced: those go by the declaration of then. Policies, gates and
secrets are always today's.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from kfm_pipelines.care.governance import Governance, KeyRules, governance_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates import ApprovedSchema
from kfm_pipelines.gates.schema_approval import approved_schema
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.snapshot import (
    DECLARATION,
    ENVIRONMENT,
    load_declaration,
    save_declaration,
    save_environment,
)


class KeyConfig:
    """Read when a stage first needs them, so that what is amiss with them is each key's failure."""

    def __init__(self, services: Services, dataset: Dataset, declaration_digest: str | None = None) -> None:
        self._services = services
        self.dataset = dataset
        self._declaration_digest = declaration_digest  # digest of what is kept already

    @cached_property
    def governance(self) -> Governance:
        return governance_of(self._services, self.dataset)

    @cached_property
    def approved(self) -> ApprovedSchema:
        return approved_schema(self._services, self.dataset)

    def rules(self, key: str) -> KeyRules:
        return self.governance.rules_for(key)

    def as_detail(self, key: str) -> Mapping[str, Any]:
        """What the log keeps of them, so that they can be compared and had again."""
        rules = self.rules(key)
        return {
            "frozen": self._snapshot_digests,
            "policy": {"name": rules.policy.name, "sha256": rules.policy.digest},
            "exemption": rules.exemption.id if rules.exemption else None,
        }

    @cached_property
    def _snapshot_digests(self) -> Mapping[str, str]:
        declaration = self._declaration_digest or save_declaration(self._services, self.dataset)
        return {DECLARATION: declaration, ENVIRONMENT: save_environment(self._services)}


class KeyConfigs:
    """The terms of each key of a run: all the same, or by the digest of the declaration that made what is published."""

    def __init__(self, services: Services, dataset: Dataset, declaration_of: Callable[[str], str] | None) -> None:
        self._services = services
        self._current = KeyConfig(services, dataset)
        self._declaration_of = declaration_of
        self._historical: dict[str, KeyConfig] = {}

    def for_key(self, key: str) -> KeyConfig:
        if self._declaration_of is None:
            return self._current
        digest = self._declaration_of(key)
        if digest not in self._historical:
            self._historical[digest] = KeyConfig(self._services, self._with_current_quality(digest), digest)
        return self._historical[digest]

    def _with_current_quality(self, digest: str) -> Dataset:
        """Who has to see a release first, and how good it has to be, is no part of what made it. Thresholds name
        columns, so those of another version would be about another table."""
        then, now = load_declaration(self._services, digest), self._current.dataset
        same = then.key.transform_version == now.key.transform_version
        return then.model_copy(update={"review": now.review} | ({"quality": now.quality} if same else {}))

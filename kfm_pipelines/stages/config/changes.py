"""What of the configuration is not as it was when a key was made: declaration, policy, exemption, software, store.

For many keys at once: they mostly share what made them, so each document is compared once.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from kfm_pipelines.care.governance import Governance, governance_of
from kfm_pipelines.catalog.trust.signer import signer_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.snapshot import (
    DECLARATION,
    ENVIRONMENT,
    declaration_changes,
    environment_changes,
    environment_document,
    load_declaration,
)
from kfm_pipelines.state.config_snapshots import load_snapshot
from kfm_pipelines.state.last_transaction import AppliedConfig, applied_configs

UNPUBLISHED = "nothing of it is published, so there is nothing to reproduce"
NO_SNAPSHOT = "it was published before configurations were kept"


def configuration_changes(services: Services, dataset: Dataset, keys: Sequence[str]) -> dict[str, list[str]]:
    """For each of the keys why it cannot be reproduced now, one phrase each; none when its configuration is as it was.
    `dataset` is as declared now."""
    known = applied_configs(services.database, keys)
    comparison = _Comparison(services, dataset)
    return {key: comparison.changes_since(known[key]) if key in known else [UNPUBLISHED] for key in keys}


class _Comparison:
    """Then and now."""

    def __init__(self, services: Services, dataset: Dataset) -> None:
        self._services = services
        self._dataset = dataset
        self._changes_by_digest: dict[str, list[str]] = {}  # by digest of the document of then

    def changes_since(self, then: AppliedConfig) -> list[str]:
        if then.frozen is None or then.policy is None:
            return [NO_SNAPSHOT]
        return [
            *self._declaration_changes(then.frozen[DECLARATION]),
            *self._policy_changes(then.key, then.policy, then.exemption),
            *self._environment_changes(then.frozen[ENVIRONMENT]),
            *self._signer_changes(then.signed_by),
        ]

    def _declaration_changes(self, digest: str) -> list[str]:
        if digest not in self._changes_by_digest:
            then = load_declaration(self._services, digest)
            self._changes_by_digest[digest] = declaration_changes(then, self._dataset)
        return self._changes_by_digest[digest]

    def _environment_changes(self, digest: str) -> list[str]:
        if digest not in self._changes_by_digest:
            now = environment_document(self._services.settings.store_url)
            self._changes_by_digest[digest] = environment_changes(load_snapshot(self._services.database, digest), now)
        return self._changes_by_digest[digest]

    def _policy_changes(self, key: str, then: Mapping[str, str], past_exemption: str | None) -> Iterator[str]:
        now, exemption = self._governance.policy, self._governance.exemption_for(key)
        if then["name"] != now.name:
            yield f"the policy was {then['name']} and is {now.name}"
        elif then["sha256"] != now.digest:
            yield f"policy {now.name} is not what it was"
        if past_exemption != (exemption.id if exemption else None):
            yield f"it was made under {_format_exemption(past_exemption)} and is under {_format_exemption(exemption.id if exemption else None)}"

    def _signer_changes(self, then: str) -> Iterator[str]:
        now = signer_of(self._services).public.key_id
        if then != now:
            yield f"it was signed with key {then[:12]}, and releases are signed with {now[:12]} now"

    @cached_property
    def _governance(self) -> Governance:
        return governance_of(self._services, self._dataset)


def _format_exemption(exemption: str | None) -> str:
    return f"exemption {exemption}" if exemption else "no exemption"

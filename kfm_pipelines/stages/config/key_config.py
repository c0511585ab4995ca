"""The configuration of a key: its declaration, governance and approved schema, and the snapshots kept of it.

Everything is current, except that a key to be reproduced uses the declaration it was published under.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from kfm_pipelines.care.governance import Governance, KeyRules, governance_of
from kfm_pipelines.catalog.trust import environment
from kfm_pipelines.catalog.trust.environment import listed_versions
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.areas import Area, load_area
from kfm_pipelines.declarations.dataset import Dataset, format_validation_error
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.gates import ApprovedSchema
from kfm_pipelines.gates.schema_approval import Schema, SchemaProposal, approved_schema, proposal_of
from kfm_pipelines.services import Services
from kfm_pipelines.state.audit import load_snapshot, save_snapshot

DECLARATION = "declaration"
ENVIRONMENT = "environment"

Document = Mapping[str, Any]


class KeyConfig:
    """Loads each part when a stage first needs it, so that a broken part fails the key and not the run."""

    def __init__(self, services: Services, dataset: Dataset, declaration_digest: str | None = None) -> None:
        self._services = services
        self.dataset = dataset
        self._declaration_digest = declaration_digest  # of the snapshot, if there is one already

    @cached_property
    def governance(self) -> Governance:
        return governance_of(self._services, self.dataset)

    @cached_property
    def approved(self) -> ApprovedSchema | None:
        return approved_schema(self._proposal)

    @property
    def first_schema(self) -> Schema | None:
        """The schema that the dataset's first publication fixes; None when one is fixed."""
        return self._proposal.declared if self._proposal.approved is None else None

    @cached_property
    def _proposal(self) -> SchemaProposal:
        return proposal_of(self._services, self.dataset)

    def load_area(self) -> Area:
        return area_of(self._services, self.dataset)

    def area_to_judge(self, published: Table) -> Area | None:
        """Returns the area that a raster, or the places of a published table, must lie in; None for a table that has
        none, or is masked: the centre of a cell may lie outside although the place does not."""
        if self.dataset.processor in ("raster", "scene"):
            return self.load_area()
        return self.load_area() if self.dataset.has_judged_places and published == self.dataset.table else None

    def rules(self, key: str) -> KeyRules:
        return self.governance.rules_for(key)

    def as_detail(self, key: str) -> Mapping[str, Any]:
        """Returns what the log keeps, so that the configuration can be compared and restored."""
        rules = self.rules(key)
        return {
            "frozen": self._snapshot_digests,
            "policy": {"name": rules.policy.name, "sha256": rules.policy.digest},
            "exemption": rules.exemption.id if rules.exemption else None,
        }

    @cached_property
    def _snapshot_digests(self) -> Mapping[str, str]:
        database, now = self._services.database, environment_document(self._services.settings.store_url)
        return {
            DECLARATION: self._declaration_digest
            or save_snapshot(database, DECLARATION, self.dataset.model_dump(mode="json")),
            ENVIRONMENT: save_snapshot(database, ENVIRONMENT, now),
        }


class KeyConfigs:
    """The configuration of each key of a run: the current one, or that of the declaration it was published under."""

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
        """The current review and quality rules apply, the latter only within a transform version: they name columns."""
        then, now = load_declaration(self._services, digest), self._current.dataset
        rules: dict[str, Any] = {"review": now.review}
        if then.key.transform_version == now.key.transform_version:
            rules["quality"] = now.quality
        if "clip" not in (then.outside_aoi, now.outside_aoi):  # which would change the bytes
            rules["outside_aoi"] = now.outside_aoi
        return then.model_copy(update=rules)


def area_of(services: Services, dataset: Dataset) -> Area:
    """Returns the area of the dataset, read once for a process."""
    name, resources = dataset.key.aoi, services.settings.resources
    return services.load_once(("area", name), lambda: load_area(resources, name))


def environment_document(store_url: str) -> dict[str, Any]:
    """Returns what documents state about the software and the store, and every library by name."""
    facts = asdict(environment.environment_facts())
    del facts["sbom"]  # a digest of the libraries
    storage = asdict(environment.storage_facts(store_url))
    return {**facts, "storage": storage, "libraries": listed_versions(environment.sbom())}


def load_declaration(services: Services, digest: str) -> Dataset:
    """Raises ReplayRefused when this version of the software cannot read it any more."""
    try:
        return Dataset.model_validate(load_snapshot(services.database, digest))
    except ValidationError as error:
        raise ReplayRefused(
            f"its original declaration cannot be read any more: {format_validation_error(error)}"
        ) from None

"""The configuration that made a release, as it was: kept by digest when a key is computed, compared and used again when
it is to be reproduced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from kfm_pipelines.catalog.trust import environment
from kfm_pipelines.catalog.trust.environment import listed_versions
from kfm_pipelines.declarations.dataset import Dataset, format_validation_error
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.services import Services
from kfm_pipelines.state.config_snapshots import load_snapshot, save_snapshot

DECLARATION = "declaration"
ENVIRONMENT = "environment"
MAX_LIBRARIES_LISTED = 5

Document = Mapping[str, Any]


def save_declaration(services: Services, dataset: Dataset) -> str:
    return save_snapshot(services.database, DECLARATION, dataset.model_dump(mode="json"))


def save_environment(services: Services) -> str:
    return save_snapshot(services.database, ENVIRONMENT, environment_document(services.settings.store_url))


def environment_document(store_url: str) -> dict[str, Any]:
    """All that documents tell of the software and the store, and every library by name."""
    facts = asdict(environment.environment_facts())
    del facts["sbom"]  # the same, by its digest
    storage = asdict(environment.storage_facts(store_url))
    return {**facts, "storage": storage, "libraries": listed_versions(environment.sbom())}


def load_declaration(services: Services, digest: str) -> Dataset:
    """ReplayRefused when this version of the software does not understand it any more."""
    try:
        return Dataset.model_validate(load_snapshot(services.database, digest))
    except ValidationError as error:
        raise ReplayRefused(
            f"the declaration of then cannot be read any more: {format_validation_error(error)}"
        ) from None


def declaration_changes(then: Dataset, now: Dataset) -> list[str]:
    """Which fields that shape the bytes are others, though the version is the same. Of another version nothing is
    expected to be the same."""
    if then.key.transform_version != now.key.transform_version:
        return []
    return [
        f"the declaration's {field} has changed"
        for field in _differing_fields(then.digest_document, now.digest_document)
    ]


def environment_changes(then: Document, now: Document) -> list[str]:
    """What of the software and the store is other, libraries first."""
    libraries = list(_library_changes(then["libraries"], now["libraries"]))
    if len(libraries) > MAX_LIBRARIES_LISTED:
        libraries[MAX_LIBRARIES_LISTED:] = [f"{len(libraries) - MAX_LIBRARIES_LISTED} more libraries"]
    others = [
        f"{field} {_format_value(_value_at(then, field))} -> {_format_value(_value_at(now, field))}"
        for field in _differing_fields(_without_libraries(then), _without_libraries(now))
    ]
    return libraries + others


def _library_changes(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            yield f"{name} {then.get(name, 'not installed')} -> {now.get(name, 'not installed')}"


def _without_libraries(document: Document) -> Document:
    return {name: value for name, value in document.items() if name != "libraries"}


def _differing_fields(then: Document, now: Document, prefix: str = "") -> Iterator[str]:
    """The names of what differs, as deep as there are names."""
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differing_fields(before, after, f"{prefix}{name}.")
        elif before != after:
            yield prefix + name


def _value_at(document: Document, field: str) -> Any:
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _format_value(value: object) -> str:
    return "unknown" if value is None else str(value)

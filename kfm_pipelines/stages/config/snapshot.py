"""The configuration that made a release, as it was: kept by digest when a key is computed, compared and used again when
it is to be reproduced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from kfm_pipelines.catalog.trust import environment
from kfm_pipelines.catalog.trust.sbom import names_in
from kfm_pipelines.declarations.dataset import Dataset, describe
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.services import Services
from kfm_pipelines.state.config_snapshots import freeze, thawed

DECLARATION = "declaration"
ENVIRONMENT = "environment"
SHOWN = 5

Document = Mapping[str, Any]


def freeze_declaration(services: Services, dataset: Dataset) -> str:
    return freeze(services.database, DECLARATION, dataset.model_dump(mode="json"))


def freeze_environment(services: Services) -> str:
    return freeze(services.database, ENVIRONMENT, environment_document(services.settings.store_url))


def environment_document(store_url: str) -> dict[str, Any]:
    """All that documents tell of the software and the store, and every library by name."""
    facts = asdict(environment.environment_facts())
    del facts["sbom"]  # the same, by its digest
    storage = asdict(environment.storage_facts(store_url))
    return {**facts, "storage": storage, "libraries": names_in(environment.sbom())}


def declaration_of_then(services: Services, digest: str) -> Dataset:
    """ReplayRefused when this version of the software does not understand it any more."""
    try:
        return Dataset.model_validate(thawed(services.database, digest))
    except ValidationError as error:
        raise ReplayRefused(f"the declaration of then cannot be read any more: {describe(error)}") from None


def declaration_changes(then: Dataset, now: Dataset) -> list[str]:
    """Which fields that shape the bytes are others, though the version is the same. Of another version nothing is
    expected to be the same."""
    if then.key.transform_version != now.key.transform_version:
        return []
    return [f"the declaration's {field} has changed" for field in _differing(then.digest_document, now.digest_document)]


def environment_changes(then: Document, now: Document) -> list[str]:
    """What of the software and the store is other, libraries first."""
    libraries = list(_library_changes(then["libraries"], now["libraries"]))
    if len(libraries) > SHOWN:
        libraries[SHOWN:] = [f"{len(libraries) - SHOWN} more libraries"]
    others = [
        f"{field} {_told(_at(then, field))} -> {_told(_at(now, field))}"
        for field in _differing(_without_libraries(then), _without_libraries(now))
    ]
    return libraries + others


def _library_changes(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            yield f"{name} {then.get(name, 'not installed')} -> {now.get(name, 'not installed')}"


def _without_libraries(document: Document) -> Document:
    return {name: value for name, value in document.items() if name != "libraries"}


def _differing(then: Document, now: Document, prefix: str = "") -> Iterator[str]:
    """The names of what differs, as deep as there are names."""
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differing(before, after, f"{prefix}{name}.")
        elif before != after:
            yield prefix + name


def _at(document: Document, field: str) -> Any:
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _told(value: object) -> str:
    return "unknown" if value is None else str(value)

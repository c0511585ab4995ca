"""The software bill of materials: every installed distribution, as CycloneDX. The same installation has the same
document, on whatever day and machine it is written.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from kfm_pipelines.catalog.documents import document_bytes

if TYPE_CHECKING:
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

# Made up once; serial numbers are names below it.
_SERIALS = UUID("9f0c8f0e-5c2b-5d0e-9a55-6b1f1e5ad5a1")
_LICENCE = "License :: "
_MAX_LICENCE_LENGTH = 120  # some distributions put the whole text there


@dataclass(frozen=True, slots=True)
class InstalledDistribution:
    """One distribution as its own metadata states it."""

    name: str  # normalised: `Foo.Bar_baz` is foo-bar-baz
    version: str
    expression: str | None  # SPDX
    licences: tuple[str, ...]  # by name, where there is no expression


def list_installed(distributions: Iterable[Distribution]) -> tuple[InstalledDistribution, ...]:
    """Each once, sorted: of two with one name the first is the one that is imported."""
    found: dict[str, InstalledDistribution] = {}
    for distribution in distributions:
        stated = _read_metadata(distribution)
        name = normalise_name(stated.get("Name", ""))
        if name and name not in found:
            expression = _first_line(stated.get("License-Expression"))
            licences = (
                () if expression else _licences(stated.get_all("Classifier", []), _first_line(stated.get("License")))
            )
            found[name] = InstalledDistribution(name, stated.get("Version", ""), expression, licences)
    return tuple(found[name] for name in sorted(found))


def normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def sbom_document(components: Iterable[InstalledDistribution]) -> bytes:
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    bom = Bom(components=[_component(one) for one in components])
    bom.metadata.timestamp = None  # type: ignore[assignment]  # the schema asks for none
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    # It lists no dependencies of anything, which would say that there are none.
    del document["serialNumber"], document["dependencies"]
    serial = uuid5(_SERIALS, hashlib.sha256(document_bytes(document)).hexdigest())
    return document_bytes({**document, "serialNumber": f"urn:uuid:{serial}"})


def listed_versions(sbom: bytes) -> dict[str, str]:
    """Version by name of what an SBOM lists."""
    return {one["name"]: one["version"] for one in json.loads(sbom)["components"]}


def find_unlisted(
    sbom: bytes,
    distributions: Iterable[Distribution],
    modules: Mapping[str, ModuleType],
    owners: Mapping[str, Iterable[str]],
    *,
    standard: frozenset[str],
    own: Path,
) -> list[str]:
    """What is installed or imported and not in the SBOM as it is, one sentence each. `owners` names the distributions
    of every top-level module, `standard` the modules of Python itself, `own` the folder our code is run from."""
    listed = listed_versions(sbom)
    here = {one.name: one.version for one in list_installed(distributions)}
    problems = [
        f"{name} {here.get(name, 'which is not installed')} is listed as {listed.get(name, 'nothing')}"
        for name in sorted(listed.keys() | here.keys())
        if listed.get(name) != here.get(name)
    ]
    for name in sorted({_top_level_module(*module) for module in modules.items()} - standard):
        from_where = [normalise_name(owner) for owner in owners.get(name, ())]
        if from_where and not any(owner in listed for owner in from_where):
            problems.append(f"the module {name} is imported, and {from_where[0]} is not listed")
        elif not from_where and not _is_ours(name, modules.get(name), own):
            problems.append(f"the module {name} is imported and belongs to no distribution")
    return problems


def _top_level_module(name: str, module: ModuleType | None) -> str:
    """The module at the top of where it was imported from: an extension may also lie about under a name of its own."""
    spec = getattr(module, "__spec__", None)
    return (spec.name if spec is not None else name).partition(".")[0]


def _is_ours(name: str, module: ModuleType | None, own: Path) -> bool:
    """From the checkout that the commit stands for; or made in memory, by an importer, from what is listed."""
    file = getattr(module, "__file__", None)
    return file is None or Path(file).is_relative_to(own / name) or Path(file) == own / f"{name}.py"


def _read_metadata(distribution: Distribution) -> Message:
    """The headers alone: below them comes a description, often as long as a book."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return HeaderParser().parsestr(text.partition("\n\n")[0])


def _component(one: InstalledDistribution) -> "Component":
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    purl = PackageURL("pypi", None, one.name, one.version)
    return Component(
        type=ComponentType.LIBRARY,
        name=one.name,
        version=one.version,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=_component_licences(one),
    )


def _component_licences(one: InstalledDistribution) -> "list[License]":
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression

    if one.expression:
        return [LicenseExpression(one.expression)]
    return [DisjunctiveLicense(name=name) for name in one.licences]


def _licences(classifiers: Iterable[str], field: str | None) -> tuple[str, ...]:
    """Classifiers before the field, which was free text for twenty years."""
    said = {one.rpartition(" :: ")[2] for one in classifiers if one.startswith(_LICENCE)} - {"OSI Approved"}
    return tuple(sorted(said)) or ((field,) if field else ())


def _first_line(text: str | None) -> str | None:
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines and len(lines[0]) <= _MAX_LICENCE_LENGTH else None

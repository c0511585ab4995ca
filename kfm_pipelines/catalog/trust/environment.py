"""The software of this process, and its SBOM (CycloneDX), the same on any day and machine."""

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from importlib.metadata import Distribution, distributions, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.catalog.documents import document_bytes, sha256
from kfm_pipelines.catalog.facts import EnvironmentFacts, StorageFacts
from kfm_pipelines.settings import PACKAGE

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

_SERIALS = UUID("9f0c8f0e-5c2b-5d0e-9a55-6b1f1e5ad5a1")  # namespace of serial numbers
_LICENCE = "License :: "
_MAX_LICENCE_LENGTH = 120  # some distributions put the whole text there


@dataclass(frozen=True, slots=True)
class InstalledDistribution:
    name: str  # normalised: `Foo.Bar_baz` is foo-bar-baz
    version: str
    expression: str | None  # SPDX
    licences: tuple[str, ...]  # names, where there is no expression


@cache
def environment_facts() -> EnvironmentFacts:
    commit, dirty = _checkout()
    return EnvironmentFacts(
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        system=platform.system(),
        machine=platform.machine(),
        commit=commit,
        dirty=dirty,
        sbom=sha256(sbom()),
        kfm=version("kfm-pipelines"),
    )


@cache
def storage_facts(store_url: str) -> StorageFacts:
    parts = urlsplit(store_url)
    if parts.scheme != "s3":
        return StorageFacts()
    return StorageFacts(bucket=parts.netloc, region=s3_client().meta.region_name)


@cache
def sbom() -> bytes:
    return sbom_document(list_installed(distributions()))


def list_installed(found: Iterable[Distribution]) -> tuple[InstalledDistribution, ...]:
    """Lists each name once, sorted; of two distributions with one name, Python imports the first."""
    installed: dict[str, InstalledDistribution] = {}
    for distribution in found:
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        stated = HeaderParser().parsestr(text.partition("\n\n")[0])  # the description below may be long
        name = normalise_name(stated.get("Name", ""))
        if name and name not in installed:
            expression = _first_line(stated.get("License-Expression"))
            field = _first_line(stated.get("License"))  # was free text for many years, so classifiers are preferred
            classifiers = {one for one in stated.get_all("Classifier", []) if one.startswith(_LICENCE)}
            named = {one.rpartition(" :: ")[2] for one in classifiers} - {"OSI Approved"}
            licences = () if expression else tuple(sorted(named)) or ((field,) if field else ())
            installed[name] = InstalledDistribution(name, stated.get("Version", ""), expression, licences)
    return tuple(installed[name] for name in sorted(installed))


def normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def sbom_document(components: Iterable[InstalledDistribution]) -> bytes:
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    bom = Bom(components=[_component(one) for one in components])
    bom.metadata.timestamp = None  # type: ignore[assignment]  # the schema does not require it
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    # An empty list of dependencies would claim that there are none.
    del document["serialNumber"], document["dependencies"]
    serial = uuid5(_SERIALS, sha256(document_bytes(document)))
    return document_bytes({**document, "serialNumber": f"urn:uuid:{serial}"})


@cache
def listed_versions(sbom: bytes) -> Mapping[str, str]:
    return {one["name"]: one["version"] for one in json.loads(sbom)["components"]}


def unlisted_software() -> list[str]:
    """Returns one sentence for everything installed or imported that the SBOM of this process does not list."""
    modules, owners = dict(sys.modules), _owners()
    built = {name for name in modules if name.startswith("_sysconfigdata_")}  # named after the machine
    standard = frozenset({*sys.stdlib_module_names, "__main__", "__mp_main__", *built})
    return find_unlisted(sbom(), distributions(), modules, owners, standard=standard, own=PACKAGE.parent)


def find_unlisted(
    sbom: bytes,
    found: Iterable[Distribution],
    modules: Mapping[str, ModuleType],
    owners: Mapping[str, Iterable[str]],
    *,
    standard: frozenset[str],
    own: Path,
) -> list[str]:
    """`owners` names the distributions of each top-level module, `own` the folder of our code."""
    listed = listed_versions(sbom)
    here = {one.name: one.version for one in list_installed(found)}
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
    """Goes by the module's spec, because an extension may also be imported under another name."""
    spec = getattr(module, "__spec__", None)
    return (spec.name if spec is not None else name).partition(".")[0]


def _is_ours(name: str, module: ModuleType | None, own: Path) -> bool:
    """Accepts modules of our checkout, and those made in memory by an importer that is listed itself."""
    file = getattr(module, "__file__", None)
    return file is None or Path(file).is_relative_to(own / name) or Path(file) == own / f"{name}.py"


@cache
def _owners() -> dict[str, list[str]]:
    """Maps top-level modules to distributions, including single compiled files, which importlib leaves out."""
    owners = {name: list(found) for name, found in packages_distributions().items()}
    for distribution in distributions():
        for file in distribution.files or ():
            if len(file.parts) == 1 and file.suffix in (".so", ".pyd"):
                owners.setdefault(file.name.partition(".")[0], []).append(distribution.name)
    return owners


def _component(one: InstalledDistribution) -> "Component":
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
    from packageurl import PackageURL

    purl = PackageURL("pypi", None, one.name, one.version)
    named = [DisjunctiveLicense(name=name) for name in one.licences]
    return Component(
        type=ComponentType.LIBRARY,
        name=one.name,
        version=one.version,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[LicenseExpression(one.expression)] if one.expression else named,
    )


def _first_line(text: str | None) -> str | None:
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines and len(lines[0]) <= _MAX_LICENCE_LENGTH else None


def _checkout() -> tuple[str | None, bool | None]:
    git = shutil.which("git")
    if git is None or not (PACKAGE.parent / ".git").exists():
        return None, None
    commit = _run_git(git, "rev-parse", "HEAD")
    changed = _run_git(git, "status", "--porcelain", "--untracked-files=no", "--", PACKAGE.name, "resources")
    return commit, None if changed is None else bool(changed)


def _run_git(git: str, *arguments: str) -> str | None:
    command = [git, "-C", str(PACKAGE.parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() if done.returncode == 0 else None

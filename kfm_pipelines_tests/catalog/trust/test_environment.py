"""The list of software: CycloneDX, the same for the same installation, and nothing that runs is missing from it."""

import hashlib
import json
import random
from importlib.metadata import Distribution, PathDistribution, distributions
from pathlib import Path
from types import ModuleType

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kfm_pipelines.catalog.trust.environment import (
    InstalledDistribution,
    environment_facts,
    find_unlisted,
    list_installed,
    listed_versions,
    sbom,
    sbom_document,
    unlisted_software,
)

OWN = Path("/checkout")


def distribution(folder: Path, name: str, version: str = "1.0", **headers: str) -> Distribution:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"{header.replace('_', '-')}: {value}" for header, value in headers.items()]
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines, "", "License: a joke"])
    (info / "METADATA").write_text(text)
    return PathDistribution(info)


def module(name: str, file: str | None) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = file
    return made


def test_the_sbom_of_this_process_is_complete_and_valid() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom().decode()) is None
    listed = listed_versions(sbom())
    assert listed == {one.name: one.version for one in list_installed(distributions())}
    assert {"kfm-pipelines", "dagster", "pyarrow", "pytest"} <= listed.keys()
    assert environment_facts().sbom == hashlib.sha256(sbom()).hexdigest()
    assert unlisted_software() == []


def test_the_same_installation_has_the_same_sbom() -> None:
    found = list(distributions())
    random.Random(3).shuffle(found)
    assert sbom_document(list_installed(found)) == sbom()
    document = json.loads(sbom())
    assert "timestamp" not in document["metadata"]
    assert (
        document["serialNumber"]
        != json.loads(sbom_document([InstalledDistribution("a", "1", None, ())]))["serialNumber"]
    )


def test_a_licence_is_listed_where_metadata_states_it(tmp_path: Path) -> None:
    found = list_installed(
        [
            distribution(tmp_path, "Foo.Bar_baz", License_Expression="MIT OR Apache-2.0", License="ignored"),
            distribution(
                tmp_path, "classified", Classifier="License :: OSI Approved :: BSD License", License="ignored"
            ),
            distribution(tmp_path, "stated", License="Zlib"),
            distribution(tmp_path, "silent"),
            distribution(tmp_path / "later", "silent", "2.0"),
        ]
    )
    assert found == (
        InstalledDistribution("classified", "1.0", None, ("BSD License",)),
        InstalledDistribution("foo-bar-baz", "1.0", "MIT OR Apache-2.0", ()),
        InstalledDistribution("silent", "1.0", None, ()),
        InstalledDistribution("stated", "1.0", None, ("Zlib",)),
    )
    document = json.loads(sbom_document(found))
    assert [one.get("licenses") for one in document["components"]] == [
        [{"license": {"name": "BSD License"}}],
        [{"expression": "MIT OR Apache-2.0"}],
        None,
        [{"license": {"name": "Zlib"}}],
    ]
    assert document["components"][1]["purl"] == "pkg:pypi/foo-bar-baz@1.0"


@pytest.mark.parametrize(
    ("name", "file", "owners", "expected"),
    [
        ("listed", "/lib/listed.py", {"listed": ["Listed"]}, []),
        ("ours", "/checkout/ours/__init__.py", {}, []),
        ("script", "/checkout/script.py", {}, []),
        ("made", None, {}, []),
        ("stray", "/tmp/stray.py", {}, ["the module stray is imported and belongs to no distribution"]),
        ("nested", "/checkout/.venv/nested.py", {}, ["the module nested is imported and belongs to no distribution"]),
        ("other", "/lib/other.py", {"other": ["Other"]}, ["the module other is imported, and other is not listed"]),
        ("sys", None, {}, []),
    ],
)
def test_a_module_that_is_not_listed_is_named(
    tmp_path: Path, name: str, file: str | None, owners: dict[str, list[str]], expected: list[str]
) -> None:
    here = [distribution(tmp_path, "listed")]
    document = sbom_document(list_installed(here))
    modules = {f"{name}.part": module(f"{name}.part", file), name: module(name, file)}
    assert find_unlisted(document, here, modules, owners, standard=frozenset({"sys"}), own=OWN) == expected


def test_another_version_than_the_listed_one_is_named(tmp_path: Path) -> None:
    document = sbom_document(list_installed([distribution(tmp_path, "one"), distribution(tmp_path, "gone")]))
    here = [distribution(tmp_path, "one", "2.0"), distribution(tmp_path, "new")]
    assert find_unlisted(document, here, {}, {}, standard=frozenset(), own=OWN) == [
        "gone which is not installed is listed as 1.0",
        "new 1.0 is listed as nothing",
        "one 2.0 is listed as 1.0",
    ]

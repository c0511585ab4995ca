"""The package stays easy to find one's way in: small folders, unique class names, plain names, documents that lead
to files that exist."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.settings import PACKAGE

ROOT = PACKAGE.parent
CODE = (PACKAGE, ROOT / "kfm_pipelines_tests", ROOT / "bench")
MAX_FILES = 15
# Words of an early private vocabulary; the plain ones are emit, log, record, display, format, fix, route.
UNWANTED = {"told", "tell", "tells", "telling", "say", "says", "said", "shown", "mended", "excused", "road", "workshop"}
# Nouns and adjectives that only look like participles.
NOUNS = {"embed", "feed", "finding", "findings", "seed", "setting", "settings", "string", "warning"}


def modules(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in sorted(folder.rglob("*.py")) if "migrations" not in path.parts)


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def test_no_folder_is_crowded() -> None:
    files = Counter(path.parent for path in modules(*CODE) if path.name not in ("__init__.py", "conftest.py"))
    assert {str(folder): count for folder, count in files.items() if count > MAX_FILES} == {}


def test_a_class_name_is_used_once() -> None:
    classes = Counter(
        node.name
        for path in modules(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_module_is_named_by_a_participle() -> None:
    def is_participle(name: str) -> bool:
        return re.fullmatch(r"[a-z]+(ed|ing|ings)", name) is not None and name not in NOUNS

    assert [path.name for path in modules(PACKAGE) if is_participle(path.stem)] == []


def test_identifiers_are_plain() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(*CODE)
        if path != Path(__file__)
        for name in identifiers(ast.parse(path.read_text()))
        if UNWANTED & set(words(name))
    }
    assert sorted(found) == []


def test_every_module_states_what_belongs_in_it() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in modules(PACKAGE)
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "docs/architecture.md", "README.md"])
def test_paths_in_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    paths = re.findall(r"`((?:kfm_pipelines|resources|docs|bench)/[\w./-]*)`", text)
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    folder = (ROOT / document).parent
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if not (folder / link).exists()] == []


def test_the_table_of_changes_is_long_enough_to_help() -> None:
    rows = [line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) >= 15 + 1  # with its heading

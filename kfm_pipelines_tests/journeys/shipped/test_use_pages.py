"""The pages on use are true: every block of theirs is run, in order, and prints what they say."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.runbook import ANYTHING
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

USE = Path(__file__).parents[3] / "docs" / "use"
BLOCK = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """Every block of the page. One of a language that is not run is an error, so that none can hide."""
    blocks = [Block(found[1], found[2]) for found in BLOCK.finditer(page)]
    assert page.count("```") == 2 * len(blocks), "a block without end"
    for block in blocks:
        assert block.language in ("python", "sql", "text"), f"nobody runs {block.language or 'a block of no language'}"
    return blocks


def printed(block: Block, names: dict[str, Any]) -> str:
    import duckdb

    if block.language == "sql":
        with duckdb.connect() as connection:
            rows = connection.execute(block.text).fetchall()
        return "\n".join(" | ".join(map(str, row)) for row in rows)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block.text, "page", "exec"), names)
    return said.getvalue()


def run(page: str) -> None:
    names: dict[str, Any] = {}
    said = ""
    for block in blocks_of(page):
        if block.language != "text":
            said = printed(block, names)
            continue
        for line in block.text.splitlines():
            assert re.search(".*".join(map(re.escape, line.split(ANYTHING))), said), f"nothing says {line!r}: {said}"


@pytest.fixture(scope="module")
def published(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two hours, for all pages."""
    root = tmp_path_factory.mktemp("use") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        site.put(0)
        site.put(1)
        assert site.work()["published"] == 2
        yield site


@pytest.mark.slow
@pytest.mark.parametrize("name", ["duckdb.md", "geopandas.md", "pystac.md", "rasterio-qgis.md"])
def test_a_page_on_use_is_true(published: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(published.root)
    run((USE / name).read_text())


def test_every_page_is_run_and_fits_a_screen() -> None:
    pages = sorted(USE.glob("*"))
    assert [page.name for page in pages] == ["duckdb.md", "geopandas.md", "pystac.md", "rasterio-qgis.md"]
    for page in pages:
        assert len(page.read_text().splitlines()) < 70, page.name


@pytest.mark.parametrize(
    ("page", "says_why"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "nothing says '2'"),
        ("```python\nprint(1)\n```\n\n```\n1\n```\n", "nobody runs a block of no language"),
        ("```bash\nls\n```\n", "nobody runs bash"),
        ("```python\nprint(1)\n", "without end"),
    ],
)
def test_a_page_that_is_not_true_is_found(page: str, says_why: str) -> None:
    with pytest.raises(AssertionError, match=says_why):
        run(page)

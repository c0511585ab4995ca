"""Every block of the pages on use is run, in order, and prints what they say."""

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
from kfm_pipelines_tests.fixtures.sites.site import OWN, Site, opened_site

PAGES = ["duckdb.md", "geopandas.md", "iceberg.md", "pystac.md", "rasterio-qgis.md"]
USE = Path(__file__).parents[3] / "docs" / "use"
BLOCK = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """Returns every block of the page. A language that is not run is an error."""
    blocks = [Block(found[1], found[2]) for found in BLOCK.finditer(page)]
    assert page.count("```") == 2 * len(blocks), "a block without end"
    for block in blocks:
        assert block.language in ("python", "sql", "text"), f"{block.language or 'a block without language'} is not run"
    return blocks


def printed(block: Block, names: dict[str, Any]) -> str:
    import duckdb

    if block.language == "sql":
        with duckdb.connect() as connection:
            rows = connection.execute(block.text).fetchall()
        return "\n".join(" | ".join(map(str, row)) for row in rows)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(block.text, "page", "exec"), names)
    return output.getvalue()


def run(page: str) -> None:
    names: dict[str, Any] = {}
    output = ""
    for block in blocks_of(page):
        if block.language != "text":
            output = printed(block, names)
            continue
        for line in block.text.splitlines():
            pattern = ".*".join(map(re.escape, line.split(ANYTHING)))
            assert re.search(pattern, output), f"no {line!r} in {output}"


@pytest.fixture(scope="module")
def published(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with two published hours, for all pages."""
    root = tmp_path_factory.mktemp("use") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template, OWN, ["usgs-streamflow"]) as site:
        site.put(0)
        site.put(1)
        assert site.work()["published"] == 2
        yield site


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_its_expected_output(published: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(published.root)
    run((USE / name).read_text())


def test_every_page_is_run_and_fits_a_screen() -> None:
    pages = sorted(USE.glob("*"))
    elsewhere = "graph.md"  # run by the tests of the graph; its six questions need two screens
    assert [page.name for page in pages] == sorted([*PAGES, elsewhere])
    for page in (one for one in pages if one.name != elsewhere):
        assert len(page.read_text().splitlines()) < 80, page.name


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "no '2' in"),
        ("```python\nprint(1)\n```\n\n```\n1\n```\n", "a block without language is not run"),
        ("```bash\nls\n```\n", "bash is not run"),
        ("```python\nprint(1)\n", "without end"),
    ],
)
def test_a_wrong_page_is_found(page: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        run(page)

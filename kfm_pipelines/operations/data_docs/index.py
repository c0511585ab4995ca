"""The first page of a dataset's Data Docs. Great Expectations' own one is filled in by scripts from elsewhere."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.operations.data_docs.self_contained import style

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from jinja2 import Template


def index_page(
    folder: Path,
    dataset: Dataset,
    results: "Sequence[ExpectationSuiteValidationResult]",
    run_id: str,
    at: datetime,
) -> bytes:
    """With a link to each page below the folder."""
    described = [_described(folder, result) for result in results]
    suites = sorted(path.relative_to(folder).as_posix() for path in (folder / "expectations").rglob("*.html"))
    page = _template().render(
        dataset=dataset, results=described, suites=suites, run_id=run_id, at=at, style=style().decode()
    )
    return page.encode()


def _described(folder: Path, result: "ExpectationSuiteValidationResult") -> dict[str, Any]:
    [page] = (folder / "validations" / result.suite_name).rglob("*.html")
    broken = [one.expectation_config.type for one in result.results if not one.success and one.expectation_config]
    return {
        "suite": result.suite_name,
        "page": page.relative_to(folder).as_posix(),
        "success": result.success,
        "judged": len(result.results),
        "held": sum(bool(one.success) for one in result.results),
        "broken": sorted(set(broken)),
    }


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("index.html.j2")

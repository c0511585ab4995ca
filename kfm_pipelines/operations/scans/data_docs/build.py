"""Pages built by Great Expectations itself, made self-contained, with an index of our own.

A page shows whatever is in a result. So only results about published data come here, and where a policy masks only
those without values: how many were unexpected, never which.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import Terminal
from kfm_pipelines.stores import Layout, Store

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from jinja2 import Template


# What Great Expectations' pages fetch: style, scripts, its logo with the time of the page in the address, a newsletter.
_EXTERNAL_RESOURCES = re.compile(
    rb"""<script\b[^>]*\bsrc\s*=\s*["']?https?:[^>]*>\s*</script>|<(?:link|img)\b[^>]*\b(?:href|src)\s*=\s*["']?https?:[^>]*>""",
    re.IGNORECASE,
)
_FOOTER = re.compile(rb"<footer\b.*?</footer>", re.IGNORECASE | re.DOTALL)


def make_self_contained(page: bytes) -> bytes:
    """The page without what it would load, and with a little style of our own."""
    alone = _FOOTER.sub(b"", _EXTERNAL_RESOURCES.sub(b"", page))
    return alone.replace(b"</head>", b"<style>" + style() + b"</style></head>", 1)


@cache
def style() -> bytes:
    return (files(__package__) / "pages.css").read_bytes()


def render_index(
    folder: Path,
    dataset: Dataset,
    results: "Sequence[ExpectationSuiteValidationResult]",
    run_id: str,
    at: datetime,
) -> bytes:
    """With a link to each page below the folder."""
    described = [_describe_result(folder, result) for result in results]
    suites = sorted(path.relative_to(folder).as_posix() for path in (folder / "expectations").rglob("*.html"))
    page = _index_template().render(
        dataset=dataset, results=described, suites=suites, run_id=run_id, at=at, style=style().decode()
    )
    return page.encode()


def _describe_result(folder: Path, result: "ExpectationSuiteValidationResult") -> dict[str, Any]:
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
def _index_template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("index.html.j2")


SITE = "kfm"
INDEX = "index.html"


def write_data_docs(
    store: Store,
    dataset: Dataset,
    results: Sequence["ExpectationSuiteValidationResult"],
    *,
    run_id: str,
    at: datetime,
) -> str:
    """Replace the dataset's pages by those about these results; the path of the first page."""
    folder = Layout(dataset.pipeline).data_docs()
    with tempfile.TemporaryDirectory(prefix="kfm-data-docs-") as scratch:
        _build(Path(scratch), dataset, results, run_id, at)
        _copy(store, Path(scratch), folder)
    return f"{folder}/{INDEX}"


def _build(
    folder: Path,
    dataset: Dataset,
    results: Sequence["ExpectationSuiteValidationResult"],
    run_id: str,
    at: datetime,
) -> None:
    from great_expectations.core import ExpectationSuite, RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    context = _context(folder)
    run = RunIdentifier(run_name=run_id, run_time=at)
    for result in results:
        expectations = [one.expectation_config.to_domain_obj() for one in result.results if one.expectation_config]
        context.suites.add_or_update(ExpectationSuite(result.suite_name, expectations=expectations))
        result.meta["run_id"] = run
        _make_renderable(result)
        key = ValidationResultIdentifier(
            expectation_suite_identifier=ExpectationSuiteIdentifier(result.suite_name),
            run_id=run,
            batch_identifier=dataset.pipeline,
        )
        context.validation_results_store.set(key, result)
    context.build_data_docs(site_names=[SITE])
    # A page that Great Expectations fails to draw it leaves out, with no more than a line in the log.
    if len(list((folder / "validations").rglob("*.html"))) != len(results):
        raise Terminal(f"Great Expectations made no page of some result about {dataset.dataset}")
    for page in folder.rglob("*.html"):
        page.write_bytes(make_self_contained(page.read_bytes()))
    (folder / INDEX).write_bytes(render_index(folder, dataset, results, run_id, at))


def _make_renderable(result: "ExpectationSuiteValidationResult") -> None:
    """Its pages cannot do without two things that a result without values lacks: a text in the place of a traceback,
    and a percentage beside a count."""
    for one in result.results:
        if (one.exception_info or {}).get("raised_exception"):
            one.exception_info["exception_traceback"] = one.exception_info.get("exception_traceback") or ""
        if "unexpected_percent" not in one.result:
            one.result.pop("unexpected_count", None)


def _context(folder: Path) -> "EphemeralDataContext":
    """A project of Great Expectations in memory that tells nobody about itself."""
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

    return EphemeralDataContext(
        project_config=DataContextConfig(
            store_backend_defaults=InMemoryStoreBackendDefaults(),
            data_docs_sites={SITE: _site_config(folder)},
            analytics_enabled=False,
        )
    )


def _site_config(folder: Path) -> Mapping[str, Any]:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def _copy(store: Store, source: Path, folder: str) -> None:
    """The index comes last, and old pages go only then: whoever reads meanwhile finds every page it names."""
    files = {f"{folder}/{file.relative_to(source).as_posix()}": file for file in source.rglob("*") if file.is_file()}
    for path in sorted(files, key=lambda path: (path == f"{folder}/{INDEX}", path)):
        store.write(path, files[path].read_bytes())
    for path in set(store.paths(folder)) - set(files):
        store.discard(path)

"""Data Docs about published data, kept in the store. Where a policy masks, they have no values."""

import tempfile
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import Terminal
from kfm_pipelines.stores import Layout, Store

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

SITE = "kfm"
INDEX = "index.html"
# Great Expectations' pages refer to styles, scripts and images elsewhere; browsers must not load them.
NO_OUTSIDE_RESOURCES = (
    """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
)


def write_data_docs(
    store: Store, dataset: Dataset, results: Sequence["ExpectationSuiteValidationResult"], *, run_id: str, at: datetime
) -> str:
    """Replaces the dataset's pages by those about these results. Returns the path of the index."""
    target = Layout(dataset.pipeline).data_docs()
    with tempfile.TemporaryDirectory(prefix="kfm-data-docs-") as scratch:
        folder = Path(scratch)
        _build(folder, dataset, results, run_id, at)
        _write_index(folder, dataset)
        style = f"<style>{(files(__package__) / 'data_docs.css').read_text()}</style>"
        for page in folder.rglob("*.html"):
            page.write_text(page.read_text().replace("<head>", f"<head>{NO_OUTSIDE_RESOURCES}{style}", 1))
        _copy(store, folder, target)
    return f"{target}/{INDEX}"


def _build(
    folder: Path, dataset: Dataset, results: Sequence["ExpectationSuiteValidationResult"], run_id: str, at: datetime
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
    # Great Expectations leaves out a page that it fails to render and only logs it.
    if len(list((folder / "validations").rglob("*.html"))) != len(results):
        raise Terminal(f"Great Expectations rendered no page for some result about {dataset.dataset}")


def _make_renderable(result: "ExpectationSuiteValidationResult") -> None:
    """Adds what the pages need and results without values lack: a traceback text, and a percentage with each count."""
    for one in result.results:
        if (one.exception_info or {}).get("raised_exception"):
            one.exception_info["exception_traceback"] = one.exception_info.get("exception_traceback") or ""
        if "unexpected_percent" not in one.result:
            one.result.pop("unexpected_count", None)


def _context(folder: Path) -> "EphemeralDataContext":
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }
    return EphemeralDataContext(
        project_config=DataContextConfig(
            store_backend_defaults=InMemoryStoreBackendDefaults(), data_docs_sites={SITE: site}, analytics_enabled=False
        )
    )


def _write_index(folder: Path, dataset: Dataset) -> None:
    """Great Expectations' own index needs scripts from elsewhere; this one links every page without any."""
    (folder / INDEX).unlink(missing_ok=True)
    pages = sorted((page.relative_to(folder).as_posix() for page in folder.rglob("*.html")), reverse=True)
    links = "\n".join(f'<li><a href="{escape(page)}">{escape(page)}</a></li>' for page in pages)
    title = f"Data Docs of {escape(dataset.dataset)}"
    head = f'<head><meta charset="utf-8"><title>{title}</title></head>'
    page = f'<!DOCTYPE html><html lang="en">{head}<body><h1>{title}</h1><ul>{links}</ul></body></html>\n'
    (folder / INDEX).write_text(page)


def _copy(store: Store, source: Path, folder: str) -> None:
    """Writes the index last and removes old pages after it, so that readers always find every page it links."""
    pages = {f"{folder}/{file.relative_to(source).as_posix()}": file for file in source.rglob("*") if file.is_file()}
    for path in sorted(pages, key=lambda path: (path == f"{folder}/{INDEX}", path)):
        store.write(path, pages[path].read_bytes())
    for path in set(store.paths(folder)) - set(pages):
        store.discard(path)

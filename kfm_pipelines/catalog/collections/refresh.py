"""Keeps collections up to date, from the bottom up; each run or tick completes what a crash left."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import PurePosixPath

from kfm_pipelines.care.governance import policy_of, table_for_readers
from kfm_pipelines.catalog.collections import pages, tables
from kfm_pipelines.catalog.collections.pages import StalePage, Summary
from kfm_pipelines.catalog.dcat import Series, catalog_dcat, page_dcat
from kfm_pipelines.catalog.documents import PROFILE_FILE, profile_bytes
from kfm_pipelines.catalog.stac import collection as stac
from kfm_pipelines.catalog.trust.signer import update_sealed
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.quality import GATES
from kfm_pipelines.errors import KfmError
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Connection
from kfm_pipelines.state.revisions import published_keys
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import CATALOG, DCAT_CATALOG, ROOT_CATALOG, catalog_document


def refresh_collection(services: Services, dataset: Dataset) -> bool:
    """Writes the stale documents of a collection. Returns False when there was nothing to write."""
    with services.database.transaction() as connection:
        tables.lock_collection(connection, dataset.dataset)
        change = tables.unwritten_change(connection, dataset.dataset)
        if change is None:
            return False
        stale = pages.stale_pages(connection, dataset.dataset)
        summaries = _write_pages(services, connection, dataset, stale)
        settled = pages.recorded_summary(connection, dataset.dataset, summaries)
        total = pages.combine_summaries([settled, *summaries.values()])
        if not _write_collection(services, connection, dataset, summaries, total):
            return False
        _write_root(services, connection, dataset, total)
        # Last, because publications update these rows while documents are being written.
        for page in stale:
            pages.record_page(connection, dataset.dataset, page, summaries[page.page])
        tables.record_collection(connection, dataset.dataset, change)
    return True


def refresh_stale_collections(services: Services) -> list[str]:
    """Refreshes every stale collection. Returns one sentence for each that could not be written."""
    with services.database.transaction() as connection:
        stale = tables.stale_collections(connection)
    problems = []
    for name in stale:
        try:
            if name in services.datasets:
                refresh_collection(services, services.datasets[name])
        except KfmError as error:
            problems.append(f"collection of {name}: {error}")
    return problems


def _write_pages(
    services: Services, connection: Connection, dataset: Dataset, stale: list[StalePage]
) -> dict[str, Summary]:
    """Writes stale pages, those above a new one, and missing ones. Returns summaries of the stale pages."""
    layout, names = Layout(dataset.pipeline), {page.page for page in stale}
    above = {name for page in stale if page.is_new for name in stac.pages_above(page.page)}
    known = {name for one in names for name in stac.pages_above(one)}
    there = services.store.exists_all(map(layout.page, known))
    above |= {name for name in known if layout.page(name) not in there}
    summaries: dict[str, Summary] = {}
    for _, level in groupby(sorted(names | above, key=lambda page: (-len(page), page)), key=len):
        documents = {}
        for page in level:
            items = published_keys(connection, dataset.dataset, page)
            below = pages.pages_below(connection, dataset.dataset, page, names)
            summaries[page] = pages.summarise_items(items)
            if (series := _series(services, dataset, summaries[page])) is not None:  # None for a page of pages
                documents[layout.page_dcat(page)] = page_dcat(series, page, items)
            keys = [item.key for item in items]
            documents[layout.page(page)] = stac.page_document(dataset.pipeline, page, below, keys)
        update_sealed(services, documents)
    return {page: summaries[page] for page in names}


def _write_collection(
    services: Services, connection: Connection, dataset: Dataset, summaries: Mapping[str, Summary], total: Summary
) -> bool:
    """Returns False, and writes nothing, when nothing is published."""
    if total.starts is None or total.ends is None:
        return False
    facts = stac.CollectionFacts(
        **asdict(total),
        years=tuple(pages.pages_below(connection, dataset.dataset, "", summaries)),
        table=table_for_readers(services, dataset),
        policy=policy_of(services, dataset).name,
        gates=GATES,
        keys_with_errors=pages.count_keys_with_errors(connection, dataset.dataset),
        has_snapshot=tables.has_snapshot(connection, dataset.dataset, tables.ITEMS_SNAPSHOT),
    )
    update_sealed(services, {Layout(dataset.pipeline).collection(): stac.collection_document(dataset, facts)})
    return True


def _write_root(services: Services, connection: Connection, dataset: Dataset, total: Summary) -> None:
    tables.lock_root(connection)
    written = tables.written_collections(connection, dataset.dataset)
    described = [services.datasets[name] for name in written if name in services.datasets]
    published = []
    for one in described:
        is_taken = tables.has_snapshot(connection, one.dataset, tables.ITEMS_SNAPSHOT)
        address = f"./{PurePosixPath(Layout(one.pipeline).snapshot()).relative_to(CATALOG)}" if is_taken else None
        own = one.dataset == dataset.dataset
        summary = total if own else pages.recorded_summary(connection, one.dataset, ())
        if (series := _series(services, one, summary, address)) is not None:
            published.append(series)
    documents = {catalog_document(PROFILE_FILE): profile_bytes(), DCAT_CATALOG: catalog_dcat(published)}
    update_sealed(services, documents)
    update_sealed(services, {ROOT_CATALOG: stac.root_document(described)})


def _series(services: Services, dataset: Dataset, total: Summary, snapshot: str | None = None) -> Series | None:
    if total.starts is None or total.ends is None:
        return None
    policy = policy_of(services, dataset)
    return Series(dataset, policy.name, not policy.is_open, total.starts, total.ends, total.bbox, snapshot)

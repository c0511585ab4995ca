"""Collections, maintained page by page: what was published since is written anew, and nothing else.

A publication counts the change of its page and of its collection in its own transaction; whoever writes them notes up
to which change. So what was left behind by a crash is known, and the next run or tick writes it. All is written from
the bottom up, so that nothing leads to a document that is not there.
"""

from collections.abc import Mapping

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.catalog.collections import pages, snapshot_marks
from kfm_pipelines.catalog.collections.dcat import write_catalog_dcat, write_page_dcat
from kfm_pipelines.catalog.collections.pages import StalePage, Summary
from kfm_pipelines.catalog.stac.collection import CollectionFacts, collection_document, root_document
from kfm_pipelines.catalog.stac.pages import page_document, pages_above
from kfm_pipelines.catalog.stac.profile import PROFILE_FILE, profile_bytes
from kfm_pipelines.catalog.trust.signer import write_sealed
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.quality import GATES
from kfm_pipelines.errors import KfmError
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Connection
from kfm_pipelines.state.revisions import published_keys
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import ROOT_CATALOG, catalog_document


def refresh_collection(services: Services, dataset: Dataset) -> bool:
    """Write what is behind of the dataset's collection; False when nothing was."""
    parameters = {"dataset": dataset.dataset}
    with services.database.transaction() as connection:
        # One writer at a time; publications count their changes meanwhile, so they are not kept waiting.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm collection ' || %(dataset)s))", parameters)
        row = connection.execute(
            "SELECT changed, written FROM kfm.collections WHERE dataset = %(dataset)s", parameters
        ).fetchone()
        if row is None or row["changed"] == row["written"]:
            return False
        stale = pages.stale_pages(connection, dataset.dataset)
        summaries = _write_pages(services, connection, dataset, stale)
        total = _summarise_collection(connection, dataset, summaries)
        if not _write_collection(services, connection, dataset, summaries, total):
            return False
        _write_root(services, connection, dataset, total)
        # Last, because publications want to count in these rows while documents are being written.
        for page in stale:
            pages.record_page(connection, dataset.dataset, page, summaries[page.page])
        connection.execute(
            "UPDATE kfm.collections SET written = %(changed)s WHERE dataset = %(dataset)s",
            {**parameters, "changed": row["changed"]},
        )
    return True


def refresh_stale_collections(services: Services) -> list[str]:
    """Write every collection that is behind; return what could not be written and why."""
    rows = services.database.fetch("SELECT dataset FROM kfm.collections WHERE changed <> written ORDER BY dataset")
    problems = []
    for name in [row["dataset"] for row in rows if row["dataset"] in services.datasets]:
        try:
            refresh_collection(services, services.datasets[name])
        except KfmError as error:
            problems.append(f"collection of {name}: {error}")
    return problems


def _write_pages(
    services: Services, connection: Connection, dataset: Dataset, stale: list[StalePage]
) -> dict[str, Summary]:
    """Every page that is behind, and those above a new one, or above any where the store has lost them; what each of
    the former comes to now."""
    layout, names = Layout(dataset.pipeline), {page.page for page in stale}
    above = {name for page in stale if page.is_new for name in pages_above(page.page)}
    above |= {name for one in names for name in pages_above(one) if not services.store.exists(layout.page(name))}
    summaries = {}
    for page in sorted(names | above, key=lambda page: (-len(page), page)):
        items = published_keys(connection, dataset.dataset, page)
        below = pages.pages_below(connection, dataset.dataset, page, names)
        document = page_document(dataset.pipeline, page, below, [item.key for item in items])
        write_page_dcat(services, dataset, page, items)
        write_sealed(services, layout.page(page), document)
        summaries[page] = pages.summarise_items(items)
    return {page: summaries[page] for page in names}


def _summarise_collection(connection: Connection, dataset: Dataset, summaries: Mapping[str, Summary]) -> Summary:
    settled = pages.recorded_summary(connection, dataset.dataset, summaries)
    return pages.combine_summaries([settled, *summaries.values()])


def _write_collection(
    services: Services,
    connection: Connection,
    dataset: Dataset,
    summaries: Mapping[str, Summary],
    total: Summary,
) -> bool:
    """False when nothing is published, so that there is nothing to say."""
    if total.starts is None or total.ends is None:
        return False
    policy = policy_of(services, dataset)
    facts = CollectionFacts(
        items=total.items,
        rows=total.rows,
        bytes=total.bytes,
        starts=total.starts,
        ends=total.ends,
        bbox=total.bbox,
        versions=total.versions,
        years=tuple(pages.pages_below(connection, dataset.dataset, "", summaries)),
        table=published_table(dataset, policy),
        policy=policy.name,
        gates=GATES,
        keys_with_errors=pages.count_keys_with_errors(connection, dataset.dataset),
        has_snapshot=snapshot_marks.has_snapshot(connection, dataset.dataset, snapshot_marks.ITEMS),
    )
    write_sealed(services, Layout(dataset.pipeline).collection(), collection_document(dataset, facts))
    return True


def _write_root(services: Services, connection: Connection, dataset: Dataset, total: Summary) -> None:
    """The entry to everything that has a collection, this one included."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm root catalog'))")
    rows = connection.execute(
        'SELECT dataset FROM kfm.collections WHERE written > 0 OR dataset = %(dataset)s ORDER BY dataset COLLATE "C"',
        {"dataset": dataset.dataset},
    )
    described = [services.datasets[row["dataset"]] for row in rows if row["dataset"] in services.datasets]
    write_sealed(services, catalog_document(PROFILE_FILE), profile_bytes())
    write_catalog_dcat(services, connection, described, {dataset.dataset: total})
    write_sealed(services, ROOT_CATALOG, root_document(described))

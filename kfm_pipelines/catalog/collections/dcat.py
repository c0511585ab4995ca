"""DCAT beside STAC: what each page holds, and all that is published in one catalog. Written with the collections."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.catalog.collections import pages, snapshot_marks
from kfm_pipelines.catalog.collections.pages import Summary
from kfm_pipelines.catalog.dcat import Series, catalog_dcat, page_dcat
from kfm_pipelines.catalog.trust.signer import write_sealed
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Connection
from kfm_pipelines.state.revisions import PublishedKey
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import CATALOG, DCAT_CATALOG


def write_page_dcat(services: Services, dataset: Dataset, page: str, items: Sequence[PublishedKey]) -> None:
    series = _series(services, dataset, pages.summarise_items(items), None)
    if series is None:  # a page of pages
        return
    write_sealed(services, Layout(dataset.pipeline).page_dcat(page), page_dcat(series, page, items))


def write_catalog_dcat(
    services: Services,
    connection: Connection,
    datasets: Iterable[Dataset],
    summaries: Mapping[str, Summary],
) -> None:
    """From what the pages come to: as they were last written, or as is `known`."""
    published = []
    for dataset in datasets:
        there = snapshot_marks.has_snapshot(connection, dataset.dataset, snapshot_marks.ITEMS)
        address = f"./{PurePosixPath(Layout(dataset.pipeline).snapshot()).relative_to(CATALOG)}" if there else None
        total = summaries.get(dataset.dataset) or pages.recorded_summary(connection, dataset.dataset, ())
        if (series := _series(services, dataset, total, address)) is not None:
            published.append(series)
    write_sealed(services, DCAT_CATALOG, catalog_dcat(published))


def _series(services: Services, dataset: Dataset, total: Summary, snapshot: str | None) -> Series | None:
    if total.starts is None or total.ends is None:
        return None
    policy = policy_of(services, dataset)
    return Series(
        dataset=dataset,
        policy=policy.name,
        masked=not policy.is_open,
        starts=total.starts,
        ends=total.ends,
        bbox=total.bbox,
        snapshot=snapshot,
    )

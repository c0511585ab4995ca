"""Collections: written anew from the revisions whenever something of theirs was published.

A publication counts the change in its own transaction; whoever writes the collection notes up to which change. So one
that was left behind by a crash is known, and the next run or tick writes it.
"""

from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalogs.stac import Member, collection_document, root_document
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.signing import write_sealed
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.revisions import published_keys
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import ROOT_CATALOG

if TYPE_CHECKING:
    from psycopg import Connection


def refresh_collection(workshop: Workshop, dataset: Dataset) -> bool:
    """Write the dataset's collection if it is behind; False when it was not."""
    parameters = {"dataset": dataset.dataset}
    with workshop.database.transaction() as connection:
        # One writer at a time; publications count their changes meanwhile, so they are not kept waiting.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm collection ' || %(dataset)s))", parameters)
        row = connection.execute(
            "SELECT changed, written FROM kfm.collections WHERE dataset = %(dataset)s", parameters
        ).fetchone()
        if row is None or row["changed"] == row["written"]:
            return False
        keys = published_keys(connection, dataset.dataset)
        members = [Member(k.key, k.window_start, k.window_end, k.bbox) for k in keys]
        write_sealed(workshop, Layout(dataset.pipeline).collection(), collection_document(dataset, members))
        connection.execute(
            "UPDATE kfm.collections SET written = %(changed)s WHERE dataset = %(dataset)s",
            {**parameters, "changed": row["changed"]},
        )
        _refresh_root(workshop, connection)
    return True


def refresh_stale(workshop: Workshop) -> list[str]:
    """Write every collection that is behind; return what could not be written and why."""
    rows = workshop.database.fetch("SELECT dataset FROM kfm.collections WHERE changed <> written ORDER BY dataset")
    problems = []
    for name in [row["dataset"] for row in rows if row["dataset"] in workshop.datasets]:
        try:
            refresh_collection(workshop, workshop.datasets[name])
        except KfmError as error:
            problems.append(f"collection of {name}: {error}")
    return problems


def _refresh_root(workshop: Workshop, connection: "Connection[dict[str, Any]]") -> None:
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm root catalog'))")
    rows = connection.execute("SELECT dataset FROM kfm.collections WHERE written > 0 ORDER BY dataset").fetchall()
    described = [workshop.datasets[row["dataset"]] for row in rows if row["dataset"] in workshop.datasets]
    write_sealed(workshop, ROOT_CATALOG, root_document(described))

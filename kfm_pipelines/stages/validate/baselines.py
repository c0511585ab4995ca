"""What is known from earlier publications of a key and of the windows around it, as far as it can be compared."""

from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates import Baselines
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.state import wal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import Revision, current_revision, neighbour_rows
from kfm_pipelines.state.wal import Entry, Step
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    import pyarrow as pa


def load_baselines(
    services: Services, dataset: Dataset, claim: Claim, table: "pa.Table", *, unmasked: bool
) -> Baselines:
    """Numbers of rows say something only of tables that were made under the same policy: what an exemption let out must
    not stop what replaces it. How many rows masking leaves depends on more than the window."""
    current = current_revision(services.database, claim.key)
    around = dataset.quality.rows.neighbours
    neighbours = neighbour_rows(services.database, claim.key, around.windows) if around and unmasked else []
    if current is None or not _have_same_facts(services, claim, current, Step.MASK, "policy", "exemption"):
        return Baselines(neighbour_rows=tuple(neighbours))
    drifted = _have_same_facts(services, claim, current, Step.COMPUTE, "etags") and _has_drifted(
        services, dataset, current, table
    )
    return Baselines(
        previous_rows=current.rows,
        neighbour_rows=tuple(neighbours),
        same_inputs_hash=current.content_hash if drifted else None,
    )


def _have_same_facts(services: Services, claim: Claim, current: Revision, step: Step, *facts: str) -> bool:
    """Whether this transaction and the one that made the current revision have these in common."""
    with services.database.transaction() as connection:
        now = wal.entry_of(connection, claim.key, claim.epoch, step)
        then = wal.entry_of(connection, claim.key, current.txn, step)
    return now is not None and then is not None and _facts(now, facts) == _facts(then, facts)


def _facts(entry: Entry, names: tuple[str, ...]) -> list[object]:
    return [entry.detail.get(name) for name in names]


def _has_drifted(services: Services, dataset: Dataset, current: Revision, table: "pa.Table") -> bool:
    """Whether the columns that both have hold other values. What a declaration says about a column is written into the
    file as well, and may be said better without anything having drifted."""
    path = Layout(dataset.pipeline).content(current.content_hash)
    if not services.store.exists(path):
        return False
    published = read_parquet(services.store.read(path), current.key)
    shared = [name for name in published.column_names if name in table.column_names]
    return not published.select(shared).equals(table.select(shared))

"""What is known from earlier publications of a key and of the windows around it, as far as a threshold asks for it."""

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.gates import Precedents
from kfm_pipelines.state import wal
from kfm_pipelines.state.claims import Claim
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.revisions import Revision, current_revision, neighbour_rows
from kfm_pipelines.state.wal import Step


def precedents_of(database: Database, dataset: Dataset, claim: Claim) -> Precedents:
    current = current_revision(database, claim.key)
    neighbours = dataset.quality.rows.neighbours
    return Precedents(
        previous_rows=current.rows if current else None,
        neighbour_rows=tuple(neighbour_rows(database, claim.key, neighbours.windows)) if neighbours else (),
        same_objects_gave=current.content_hash if current and _same_objects(database, claim, current) else None,
    )


def _same_objects(database: Database, claim: Claim, current: Revision) -> bool:
    """Whether this transaction and the one that made the current revision read the same bytes under the same rules."""
    return _read(database, claim.key, claim.epoch) == _read(database, claim.key, current.txn)


def _read(database: Database, key: str, txn: int) -> tuple[object, ...]:
    with database.transaction() as connection:
        computed = wal.entry_of(connection, key, txn, Step.COMPUTE)
        masked = wal.entry_of(connection, key, txn, Step.MASK)
    if computed is None or masked is None:
        return (txn,)  # like nothing else
    return (computed.detail.get("etags"), masked.detail.get("policy"), masked.detail.get("exemption"))

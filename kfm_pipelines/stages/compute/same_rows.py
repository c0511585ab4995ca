"""Keys that a shared object concerns in name only: it has no rows of their member, or the same ones as before.

The inputs of such a key are the rows of its member, not the whole objects, so that a correction of one county is a new
revision of that county alone.
"""

import hashlib
from typing import TYPE_CHECKING

from kfm_pipelines.events import CanonicalKey, member_of_key
from kfm_pipelines.parquet.parquet import write_published
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.inputs import KnownInputs, PreparedInputs, SkippedKey, is_intact
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.state import wal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.state.wal import Step

if TYPE_CHECKING:
    import pyarrow as pa


def order_by_window(claims: list[Claim]) -> list[Claim]:
    """Puts keys that share objects next to each other."""
    return sorted(claims, key=lambda claim: (CanonicalKey.parse(claim.key).time_window, claim.key))


def skip_same_rows(
    services: Services,
    config: KeyConfig,
    claim: Claim,
    known: KnownInputs | None,
    prepared: PreparedInputs,
    table: "pa.Table",
) -> SkippedKey | None:
    """Returns why nothing has to be published of a key that shares its objects; None if it does. `known` is None for a
    reproduction, which decides for itself."""
    if config.dataset.key.split_by is None or known is None:
        return None
    member, current = member_of_key(config.dataset, claim.key), known.facts.current
    if current is None:
        empty = SkippedKey({"reason": f"its objects have no rows of {member}"}, prepared.fetches)
        return None if table.num_rows else empty
    if not _is_repeated(services, config, claim, prepared, current, table):
        return None
    note = f"the rows of {member} are those of revision {current.revision}; only others of its objects changed"
    detail = {"revision": current.revision, "reason": note, "fingerprint": prepared.fingerprint}
    return SkippedKey(detail, prepared.fetches)


def _is_repeated(
    services: Services,
    config: KeyConfig,
    claim: Claim,
    prepared: PreparedInputs,
    current: Revision,
    table: "pa.Table",
) -> bool:
    with services.database.transaction() as connection:
        computed = wal.entry_of(connection, claim.key, current.txn, Step.COMPUTE)
    if computed is None or computed.detail["config"] != prepared.config:
        return False
    declared, has_boxes = config.rules(claim.key).published_table(config.dataset), config.dataset.processor == "vector"
    data = write_published(table, declared, boxes=has_boxes)
    same = hashlib.sha256(data).hexdigest() == current.content_hash
    return same and is_intact(services, config.dataset, current)

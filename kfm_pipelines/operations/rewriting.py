"""Writing what is made of all releases anew: the table of a collection's Items, the graph of all provenance.

Reading all of them takes longer than a transaction may be idle, so it is done outside of any and holds nobody off.
Right before the result is written, with nobody taking anything back, the log is asked whether something that was read
has been taken back since, or somebody else has written a newer one. Then it is made again.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.state import snapshots
from kfm_pipelines.state.withdrawals import any_withdrawn

if TYPE_CHECKING:
    from psycopg import Connection

ATTEMPTS = 3

Written = TypeVar("Written")


def written_at_last(what: str, attempt: Callable[[], Written | None]) -> Written:
    """What came of the first attempt that was not in vain."""
    for _ in range(ATTEMPTS):
        written = attempt()
        if written is not None:
            return written
    raise ServiceUnavailable(f"what {what} was made of changed each time before it was written")


def is_outdated(
    connection: "Connection[dict[str, Any]]", kind: str, changes: Mapping[str, int], read: Mapping[str, str]
) -> bool:
    """Whether it must not be written: there is a newer one, or of the contents that were `read`, by key, one was taken
    back. Holds for as long as the caller holds off others."""
    return snapshots.has_newer(connection, kind, changes) or any_withdrawn(connection, read)

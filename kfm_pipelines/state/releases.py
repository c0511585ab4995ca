"""Current releases of a dataset's keys, as inputs of the datasets derived from it.

What only an exemption has released unmasked is left out: it is withdrawn when the exemption ends, and could not be
withdrawn from what is made of it.
"""

from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.events.release import RELEASE_SHAPE, UpstreamRelease
from kfm_pipelines.state.database import Connection
from kfm_pipelines.state.inbox import LISTING

# The ledger numbers publications in their order; what was published before there was one has no number.
# OFFSET 0 keeps the planner from joining all events where it has to look at those of one key.
_CURRENT = """
    SELECT k.dataset, k.key, k.window_start, k.window_end, r.revision, r.content_hash, r.bytes,
           coalesce(l.id, 0) AS position
    FROM {keys} k
    JOIN LATERAL (SELECT * FROM kfm.revisions WHERE key = k.key ORDER BY revision DESC LIMIT 1) r ON true
    LEFT JOIN kfm.ledger l ON l.key = r.key AND l.txn = r.txn
    WHERE k.dataset = %(upstream)s AND split_part(k.key, ':', 5) = %(upstream_version)s
      AND NOT EXISTS (SELECT FROM kfm.audit a
                      WHERE a.key = k.key AND a.action = 'exempted' AND a.digest = r.content_hash OFFSET 0)
"""
_UNANNOUNCED = f"""
    {_CURRENT} AND NOT EXISTS (
        SELECT FROM kfm.inbox i
        WHERE i.shape = '{RELEASE_SHAPE}' AND i.asset_uri = %(folder)s || k.key AND i.dataset = %(dataset)s
          AND split_part(i.key, ':', 5) = %(version)s AND i.queue <> '{LISTING}'
          AND i.sequencer = lpad(to_hex(coalesce(l.id, 0)), 16, '0') OFFSET 0)
    ORDER BY k.window_start, k.key LIMIT %(limit)s
"""
_ALL_KEYS = "kfm.keys"
_PUBLISHED_SINCE = """
    (SELECT * FROM kfm.keys WHERE key IN (
        SELECT key FROM kfm.ledger WHERE dataset = %(upstream)s AND at > %(since)s))
"""


@dataclass(frozen=True, slots=True)
class Derivation:
    """One upstream of one derived dataset, in their transform versions. `folder` is the beginning of the addresses of
    the upstream's keys."""

    dataset: str
    version: str
    upstream: str
    upstream_version: str
    folder: str


def unannounced_releases(
    connection: Connection, derivation: Derivation, *, since: datetime | None, limit: int
) -> list[UpstreamRelease]:
    """Returns current releases of the upstream that are no event of the derived dataset yet, the oldest windows first:
    all of them, or those published after `since`."""
    query = _UNANNOUNCED.format(keys=_ALL_KEYS if since is None else _PUBLISHED_SINCE)
    parameters = {
        "upstream": derivation.upstream,
        "upstream_version": derivation.upstream_version,
        "folder": derivation.folder,
        "dataset": derivation.dataset,
        "version": derivation.version,
        "since": since,
        "limit": limit,
    }
    return [UpstreamRelease(**row) for row in connection.execute(query.encode(), parameters)]


def current_releases(connection: Connection, upstream: str, upstream_version: str) -> list[UpstreamRelease]:
    parameters = {"upstream": upstream, "upstream_version": upstream_version}
    rows = connection.execute(_CURRENT.format(keys=_ALL_KEYS).encode(), parameters)
    return [UpstreamRelease(**row) for row in rows]

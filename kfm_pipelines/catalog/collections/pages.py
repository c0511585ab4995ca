"""Pages of a collection, with stored summaries: one more key costs the same however many there are."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from kfm_pipelines.declarations.identity import BBox, box_from, union
from kfm_pipelines.state.database import Connection
from kfm_pipelines.state.revisions import PublishedKey


@dataclass(frozen=True, slots=True)
class StalePage:
    page: str
    changed: int
    is_new: bool  # never written, so nothing links it


@dataclass(frozen=True, slots=True)
class Summary:
    items: int = 0
    rows: int = 0
    bytes: int = 0
    starts: datetime | None = None
    ends: datetime | None = None
    bbox: BBox | None = None
    versions: tuple[str, ...] = ()


def mark_pages_stale(connection: Connection, dataset: str, keys: Sequence[str]) -> None:
    statement = """
        INSERT INTO kfm.collection_pages (dataset, page, changed)
        SELECT DISTINCT %(dataset)s, kfm.page_of(key), 1 FROM unnest(%(keys)s::text[]) AS key ORDER BY 2
        ON CONFLICT (dataset, page) DO UPDATE SET changed = kfm.collection_pages.changed + 1
    """
    connection.execute(statement, {"dataset": dataset, "keys": list(keys)})


def mark_every_page_stale(connection: Connection, dataset: str) -> None:
    statement = "UPDATE kfm.collection_pages SET changed = changed + 1 WHERE dataset = %(dataset)s"
    connection.execute(statement, {"dataset": dataset})


def stale_pages(connection: Connection, dataset: str) -> list[StalePage]:
    query = """
        SELECT page, changed, written FROM kfm.collection_pages
        WHERE dataset = %(dataset)s AND changed <> written ORDER BY page
    """
    rows = connection.execute(query, {"dataset": dataset})
    return [StalePage(row["page"], row["changed"], is_new=row["written"] == 0) for row in rows]


def pages_below(connection: Connection, dataset: str, above: str, being_written: Collection[str]) -> list[str]:
    """Returns the pages below a page, or below the collection for "", that are or will be written."""
    query = """
        SELECT DISTINCT split_part(substr(page, length(%(above)s::text) + 1), '/', 1) AS part
        FROM kfm.collection_pages
        WHERE dataset = %(dataset)s AND starts_with(page, %(above)s) AND (written > 0 OR page = ANY(%(being_written)s))
        ORDER BY part
    """
    parameters = {"dataset": dataset, "above": f"{above}/" if above else "", "being_written": list(being_written)}
    rows = connection.execute(query, parameters)
    return [f"{above}/{row['part']}" if above else row["part"] for row in rows]


def recorded_summary(connection: Connection, dataset: str, except_pages: Collection[str]) -> Summary:
    query = """
        SELECT coalesce(sum(items), 0)::bigint AS items, coalesce(sum(rows), 0)::bigint AS rows,
               coalesce(sum(bytes), 0)::bigint AS bytes, min(starts) AS starts, max(ends) AS ends,
               min(bbox[1]) AS west, min(bbox[2]) AS south, max(bbox[3]) AS east, max(bbox[4]) AS north,
               (SELECT array_agg(DISTINCT version) FROM kfm.collection_pages v, unnest(v.versions) AS version
                WHERE v.dataset = %(dataset)s AND v.page <> ALL(%(without)s)) AS versions
        FROM kfm.collection_pages WHERE dataset = %(dataset)s AND page <> ALL(%(without)s)
    """
    [row] = connection.execute(query, {"dataset": dataset, "without": list(except_pages)}).fetchall()
    edges = [row[edge] for edge in ("west", "south", "east", "north")]
    return Summary(
        **{name: row[name] for name in ("items", "rows", "bytes", "starts", "ends")},
        bbox=None if None in edges else box_from(edges),
        versions=tuple(sorted(row["versions"] or ())),
    )


def record_page(connection: Connection, dataset: str, stale: StalePage, summary: Summary) -> None:
    """Records that the page is written, up to the change it was found with."""
    statement = """
        UPDATE kfm.collection_pages
        SET written = %(changed)s, items = %(items)s, rows = %(rows)s, bytes = %(bytes)s, starts = %(starts)s,
            ends = %(ends)s, bbox = %(bbox)s, versions = %(versions)s
        WHERE dataset = %(dataset)s AND page = %(page)s
    """
    parameters = {
        **asdict(summary),
        "dataset": dataset,
        "page": stale.page,
        "changed": stale.changed,
        "bbox": list(summary.bbox) if summary.bbox else None,
        "versions": list(summary.versions),
    }
    connection.execute(statement, parameters)


def summarise_items(items: Sequence[PublishedKey]) -> Summary:
    return combine_summaries(
        Summary(1, one.rows, one.bytes, one.window_start, one.window_end, one.bbox, (one.key.rsplit(":", 1)[-1],))
        for one in items
    )


def combine_summaries(summaries: Iterable[Summary]) -> Summary:
    found = [one for one in summaries if one.items]
    return Summary(
        items=sum(one.items for one in found),
        rows=sum(one.rows for one in found),
        bytes=sum(one.bytes for one in found),
        starts=min((one.starts for one in found if one.starts), default=None),
        ends=max((one.ends for one in found if one.ends), default=None),
        bbox=union(one.bbox for one in found),
        versions=tuple(sorted({version for one in found for version in one.versions})),
    )


def count_keys_with_errors(connection: Connection, dataset: str) -> int:
    query = """
        SELECT count(*) AS keys FROM kfm.scanned s JOIN kfm.keys k ON k.key = s.key
        WHERE s.errors > 0 AND k.dataset = %(dataset)s
          AND s.revision = (SELECT max(revision) FROM kfm.revisions r WHERE r.key = s.key)
    """
    [row] = connection.execute(query, {"dataset": dataset}).fetchall()
    return int(row["keys"])

"""The write-ahead log of the tables. A commit is on a branch of its own until it is audited and published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import uuid4

from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.transactions import KeyFacts


@dataclass(frozen=True, slots=True)
class Purpose:
    """Who makes a commit, and of which keys; without any it puts files together."""

    writer: str
    keys: Mapping[str, KeyFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableCommit:
    id: int
    branch: str
    base: int  # the snapshot that the branch began with
    snapshot: int | None  # what was audited


@dataclass(frozen=True, slots=True)
class TableRevision:
    """What a published commit made the table show of a key; no revision when the key left it."""

    key: str
    revision: int | None
    content_hash: str | None
    snapshot: int
    ended: datetime


def begin(database: Database, dataset: str, purpose: Purpose, base: int) -> TableCommit:
    branch, keys = f"{purpose.writer}_{uuid4().hex[:12]}", purpose.keys
    with database.transaction() as connection:
        statement = """
            INSERT INTO kfm.table_commits (dataset, branch, kind, base)
            VALUES (%(dataset)s, %(branch)s, %(kind)s, %(base)s) RETURNING id
        """
        kind = "publication" if keys else "compaction"
        values = {"dataset": dataset, "branch": branch, "kind": kind, "base": base}
        [row] = connection.execute(statement, values).fetchall()
        current = [facts.current for facts in keys.values()]
        statement = """
            INSERT INTO kfm.table_commit_keys (commit_id, key, revision, content_hash)
            SELECT %(id)s, * FROM unnest(%(keys)s::text[], %(revisions)s::integer[], %(contents)s::text[])
        """
        parameters = {
            "id": row["id"],
            "keys": list(keys),
            "revisions": [one.revision if one else None for one in current],
            "contents": [one.content_hash if one else None for one in current],
        }
        connection.execute(statement, parameters)
    return TableCommit(row["id"], branch, base, None)


def record_audited(database: Database, commit: TableCommit, snapshot: int) -> None:
    statement = "UPDATE kfm.table_commits SET snapshot = %(snapshot)s WHERE id = %(id)s AND outcome IS NULL"
    database.execute(statement, {"id": commit.id, "snapshot": snapshot})


def end(database: Database, commit: TableCommit, outcome: str) -> None:
    statement = """
        UPDATE kfm.table_commits SET outcome = %(outcome)s, ended = clock_timestamp()
        WHERE id = %(id)s AND outcome IS NULL
    """
    database.execute(statement, {"id": commit.id, "outcome": outcome})


def open_commits(database: Database, dataset: str) -> list[TableCommit]:
    query = """
        SELECT id, branch, base, snapshot FROM kfm.table_commits
        WHERE dataset = %(dataset)s AND outcome IS NULL ORDER BY id
    """
    return [TableCommit(**row) for row in database.fetch(query, {"dataset": dataset})]


def latest_revisions(database: Database, keys: Sequence[str]) -> dict[str, TableRevision]:
    """Returns what the table shows of each key that was ever in it."""
    query = """
        SELECT last.* FROM unnest(%(keys)s::text[]) AS asked (key)
        JOIN LATERAL (
            SELECT k.key, k.revision, k.content_hash, c.snapshot, c.ended
            FROM kfm.table_commit_keys k JOIN kfm.table_commits c ON c.id = k.commit_id
            WHERE k.key = asked.key AND c.outcome = 'published' ORDER BY c.id DESC LIMIT 1) last ON true
    """
    return {row["key"]: TableRevision(**row) for row in database.fetch(query, {"keys": list(keys)})}


def history_of_key(connection: Connection, key: str) -> list[TableRevision]:
    """Returns what the table has shown of a key, in order."""
    query = """
        SELECT k.key, k.revision, k.content_hash, c.snapshot, c.ended
        FROM kfm.table_commit_keys k JOIN kfm.table_commits c ON c.id = k.commit_id
        WHERE k.key = %(key)s AND c.outcome = 'published' ORDER BY c.id
    """
    return [TableRevision(**row) for row in connection.execute(query, {"key": key})]


def forget_commits(database: Database, dataset: str, days: int) -> int:
    """Removes what ended this long ago, except the last publication of each key. Returns how many commits."""
    statement = """
        DELETE FROM kfm.table_commits c
        WHERE c.dataset = %(dataset)s AND c.ended < clock_timestamp() - make_interval(days => %(days)s)
          AND (c.outcome = 'abandoned' OR NOT EXISTS (
              SELECT FROM kfm.table_commit_keys k WHERE k.commit_id = c.id AND NOT EXISTS (
                  SELECT FROM kfm.table_commit_keys l JOIN kfm.table_commits d ON d.id = l.commit_id
                  WHERE l.key = k.key AND l.commit_id > k.commit_id AND d.outcome = 'published')))
    """
    return database.execute(statement, {"dataset": dataset, "days": days})


def metadata_location(database: Database, catalog: str, namespace: str, name: str) -> str | None:
    """Returns where the current metadata of a table is, from the catalog itself."""
    query = """
        SELECT metadata_location FROM iceberg.iceberg_tables
        WHERE catalog_name = %(catalog)s AND table_namespace = %(namespace)s AND table_name = %(name)s
    """
    rows = database.fetch(query, {"catalog": catalog, "namespace": namespace, "name": name})
    return rows[0]["metadata_location"] if rows else None

"""The connection to Postgres: a small pool, the migrations, and the translation of database errors."""

import os
import secrets
import select
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import Fenced, ServiceUnavailable, SettingsInvalid, Terminal
from kfm_pipelines.settings import with_driver

if TYPE_CHECKING:
    import psycopg
    from psycopg.types.json import Jsonb
    from psycopg_pool import ConnectionPool

    Connection = psycopg.Connection[dict[str, Any]]
else:
    Connection = object  # psycopg loads with the first connection


Row = dict[str, Any]

# A worker that hangs while it holds a key must not stop the sensor, nor for long that key's next worker.
LOCK_SECONDS = 5
CONNECTION_SECONDS = 15
IDLE_IN_TRANSACTION_SECONDS = 120
# Before the name of a process's sessions, in that of the session that holds its lock.
LOCK_SESSION = "lock of "
# For session locks: each side must notice within seconds that the host of the other is gone.
_PROBES: dict[str, Any] = {"keepalives_idle": 3, "keepalives_interval": 2, "keepalives_count": 3}
_UNANSWERED_MILLISECONDS = 9000


class TransitionIllegal(Terminal):
    """The database refused a transition that the design forbids: a defect, never caused by input."""

    triage = "defect"


class Database:
    """One Postgres database. Rows are dictionaries inside this package and typed values outside."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._token = secrets.token_hex(4)
        self._pool: ConnectionPool[Connection] | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commits at the end of the block, rolls back on any exception."""
        with translated_errors(), self._open_pool().connection() as connection:
            yield connection

    def fetch(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        with self._one_statement() as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def execute(self, statement: str, parameters: Mapping[str, object] | None = None) -> int:
        with self._one_statement() as connection:
            return connection.execute(statement.encode(), parameters).rowcount

    @contextmanager
    def _one_statement(self) -> Iterator[Connection]:
        """Postgres commits a statement by itself: one message instead of three, and a process that is stopped after it
        holds no lock."""
        with self.transaction() as connection:
            connection.autocommit = True
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.autocommit = False

    def connect(self) -> Connection:
        """Opens a connection outside the pool, for locks that last as long as it does."""
        import psycopg
        from psycopg.rows import dict_row

        options = " ".join(f"-c tcp_{name}={value}" for name, value in _PROBES.items())
        with translated_errors():
            return psycopg.connect(
                self._url,
                autocommit=True,
                row_factory=dict_row,
                connect_timeout=5,
                application_name=LOCK_SESSION + self._sessions,
                tcp_user_timeout=_UNANSWERED_MILLISECONDS,
                options=f"{options} -c tcp_user_timeout={_UNANSWERED_MILLISECONDS}",
                **_PROBES,
            )

    @property
    def _sessions(self) -> str:
        """The name of this process's sessions in Postgres."""
        return f"kfm {os.getpid()}-{self._token}"

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _open_pool(self) -> "ConnectionPool[Connection]":
        if self._pool is None:
            import psycopg
            from psycopg.rows import dict_row
            from psycopg_pool import ConnectionPool

            self._pool = ConnectionPool(
                self._url,
                connection_class=psycopg.Connection[Row],
                kwargs={
                    "row_factory": dict_row,
                    "connect_timeout": 5,
                    "application_name": self._sessions,
                    # Published documents contain the times that it returns.
                    "options": f"-c timezone=UTC -c lock_timeout={LOCK_SECONDS}s"
                    f" -c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_SECONDS}s",
                },
                min_size=0,
                max_size=8,
                max_idle=60,
                timeout=CONNECTION_SECONDS,
                check=_check,
                open=True,
            )
        return self._pool


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises errors of Postgres as ours."""
    import psycopg
    from psycopg_pool import PoolTimeout

    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
        raise ServiceUnavailable(f"Postgres does not answer: {_first_line(error)}") from error
    except psycopg.Error as error:
        own = {"KF001": Fenced, "KF002": TransitionIllegal}.get(error.sqlstate or "")
        reason = _first_line(error)
        raise (own(reason) if own else Terminal(f"Postgres refused: {reason}")) from error


def may_have_died(descriptor: int) -> bool:
    """Whether there is something to read: a server that closes a connection or stops leaves data on it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _check(connection: Connection) -> None:
    """Raises when the connection is dead; the pool then opens another."""
    from psycopg_pool import ConnectionPool

    if may_have_died(connection.fileno()):
        ConnectionPool.check_connection(connection)


def migrate(postgres_url: str) -> None:
    """Brings the `kfm` schema up to date; safe to call repeatedly and from several processes at once."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import OperationalError

    config = Config()
    config.set_main_option("script_location", "kfm_pipelines.state:migrations")
    engine = create_engine(with_driver(postgres_url, "psycopg"))
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('kfm migrations'))"))
            connection.execute(text("CREATE SCHEMA IF NOT EXISTS kfm"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except OperationalError as error:
        raise ServiceUnavailable(f"Postgres does not answer: {_first_line(error)}") from error
    except CommandError as error:
        raise SettingsInvalid(f"the database schema belongs to another version of kfm; update kfm ({error})") from error
    finally:
        engine.dispose()


HEAD = "0011"


def is_current(database: Database) -> bool:
    """Whether the schema is the one this code needs; cheaper than asking Alembic."""
    known = database.fetch("SELECT to_regclass('kfm.alembic_version') IS NOT NULL AS there")
    if not known[0]["there"]:
        return False
    return database.fetch("SELECT version_num FROM kfm.alembic_version") == [{"version_num": HEAD}]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def jsonb(value: object) -> "Jsonb":
    from psycopg.types.json import Jsonb

    return Jsonb(value)


def pairs(rows: Iterable[Row]) -> dict[Any, Any]:
    """Returns the second column of each row by the first."""
    return {one: other for one, other in map(dict.values, rows)}  # noqa: C416 - the type of dict_values is not a pair


def columns(values: Iterable[object], *names: str) -> dict[str, list[Any]]:
    """Returns these attributes of all values, as parameters that `unnest` turns into rows; `a.b` is named `b`."""
    rows = list(values)
    return {name.rpartition(".")[2]: [*map(attrgetter(name), rows)] for name in names}


def insert_rows(connection: Connection, table: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Inserts rows with the same columns into a table of the schema `kfm`, in their order, by one statement."""
    from psycopg import sql

    if rows:
        name, columns = sql.Identifier("kfm", table), sql.SQL(", ").join(map(sql.Identifier, rows[0]))
        statement = sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, %(rows)s)"
        )
        connection.execute(statement.format(table=name, columns=columns), {"rows": jsonb(rows)})


def advisory_lock(connection: Connection, name: str, seconds: float) -> bool:
    """Takes the named advisory lock until the transaction ends. Rolls back and returns False when it stays taken."""
    from psycopg.errors import LockNotAvailable

    connection.execute("SELECT set_config('lock_timeout', %(ms)s, true)", {"ms": f"{round(seconds * 1000)}ms"})
    try:
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))", {"name": name})
    except LockNotAvailable:
        connection.rollback()
        return False
    return True


@contextmanager
def session_lock(database: Database, name: str, seconds: float) -> Iterator[bool]:
    """Holds the named advisory lock on a connection of its own, so for as long as needed. Yields whether it was free
    within this time."""
    deadline = time.monotonic() + seconds
    with closing(database.connect()) as connection, translated_errors():
        while not _try_lock(connection, name):
            if time.monotonic() > deadline:
                yield False
                return
            time.sleep(0.05)
        yield True


def _try_lock(connection: Connection, name: str) -> bool:
    query = "SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0)) AS taken"
    [row] = connection.execute(query, {"name": name}).fetchall()
    return bool(row["taken"])

"""The connection to the graph over Bolt: transactions that are repeated when they collide, and errors as ours.

The only module that knows the driver. Neo4j 5 and ArcadeDB 26.10 both answer every statement that is sent.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from kfm_pipelines.errors import ServiceUnavailable, SettingsInvalid, Terminal
from kfm_pipelines.settings import Settings

if TYPE_CHECKING:
    import neo4j

Result = TypeVar("Result")
Row = dict[str, Any]
Run = Callable[..., list[Row]]  # runs a statement with its parameters in a transaction and returns the rows

ATTEMPTS = 6
CONNECT_SECONDS = 5
TRANSACTION_SECONDS = 120


class GraphRefused(Terminal):
    """The graph refused a statement about these keys: a defect, or a value that it cannot hold."""

    triage = "defect"


class Graph:
    """A graph server."""

    def __init__(self, driver: "neo4j.Driver") -> None:
        self._driver = driver

    def write(self, work: Callable[[Run], Result]) -> Result:
        """Runs all statements of `work` in one transaction; repeats it when another transaction was in its way."""
        for attempt in range(1, ATTEMPTS):
            try:
                return self._in_transaction(work, keep=True)
            except _Collision:
                time.sleep(0.02 * 2**attempt)
        return self._in_transaction(work, keep=True)

    def read(self, work: Callable[[Run], Result]) -> Result:
        """Runs the statements in a transaction that is always rolled back: ArcadeDB writes in read transactions too."""
        return self._in_transaction(work, keep=False)

    def run(self, statement: str) -> list[Row]:
        """Runs a statement about the schema, which Neo4j wants alone in its transaction."""
        with _translated_errors(), self._driver.session() as session:
            return [record.data() for record in session.run(statement)]

    def server(self) -> tuple[str, str]:
        """Returns address and version of the server."""
        with _translated_errors():
            info = self._driver.get_server_info()
        return str(info.address), info.agent

    def _in_transaction(self, work: Callable[[Run], Result], *, keep: bool) -> Result:
        from neo4j import READ_ACCESS, WRITE_ACCESS

        with (
            _translated_errors(),
            self._driver.session(default_access_mode=WRITE_ACCESS if keep else READ_ACCESS) as session,
            session.begin_transaction(timeout=TRANSACTION_SECONDS) as transaction,
        ):
            result = work(lambda statement, **given: [one.data() for one in transaction.run(statement, given)])
            transaction.commit() if keep else transaction.rollback()
            return result


class _Collision(ServiceUnavailable):
    """Another transaction was in the way; the same work may succeed at once."""


@contextmanager
def open_graph(settings: Settings) -> Iterator[Graph]:
    """Connects to the graph. Raises ServiceUnavailable when it does not answer, SettingsInvalid when there is none."""
    import neo4j

    if settings.graph_url is None:
        raise SettingsInvalid("KFM_GRAPH_URL is not set: there is no knowledge graph")
    with _translated_errors():
        driver = neo4j.GraphDatabase.driver(
            settings.graph_url,
            auth=(settings.graph_user, settings.graph_password),
            connection_timeout=CONNECT_SECONDS,
            connection_acquisition_timeout=CONNECT_SECONDS * 2,
            notifications_min_severity="OFF",  # otherwise a new label is a warning on the terminal
            telemetry_disabled=True,
        )
        with driver:
            driver.verify_connectivity()
            yield Graph(driver)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raises errors of the driver as ours."""
    from neo4j.exceptions import ConstraintError, DriverError, Neo4jError

    try:
        yield
    except ConstraintError as error:  # two first MERGEs of a node; the second attempt finds it
        raise _Collision(f"the graph refused twice the same node: {_sentence(error)}") from error
    except DriverError as error:
        raise ServiceUnavailable(f"the graph does not answer: {_sentence(error)}") from error
    except Neo4jError as error:
        if error.is_retryable():
            raise _Collision(f"the graph is busy: {_sentence(error)}") from error
        if (error.code or "").startswith(("Neo.ClientError.Security", "Neo.ClientError.Database")):
            raise ServiceUnavailable(f"the graph refuses us: {_sentence(error)}") from error
        raise GraphRefused(f"the graph refused: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    """Returns code and first line of an error; the driver repeats neither parameters nor the password in these."""
    code = getattr(error, "code", None) or type(error).__name__
    lines = str(getattr(error, "message", None) or error).strip().splitlines()
    return f"{code}: {lines[0][:200]}" if lines else str(code)

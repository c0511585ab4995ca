"""The graph shows what is published of the keys that were written, whatever it showed before."""

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import apply, client, sink
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.catalog.release import OPEN, STREAMFLOW
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.graph.handmade_catalog import HandmadeCatalog, source, upstream
from kfm_pipelines_tests.fixtures.graph.server import contents, empty, names, without_graph

ATLAS = declared()["atlas/drought-streamflow"]
A, B, C = (f"usgs-streamflow:kansas_statewide:none:2025-12-04T0{hour}Z:v1-0-0" for hour in range(3))
MAP = "atlas-drought-streamflow:kansas_statewide:5:2025-W49:v1-0-0"
STRICTER = dataclasses.replace(OPEN, policy="not-sensitive@3", policy_digest="e" * 64)


def write(services: Services, *keys: str) -> None:
    assert sink.write(services, STREAMFLOW, keys) == {}


def publish_some(handmade: HandmadeCatalog) -> None:
    shared = source("shared.parquet")
    handmade.publish(STREAMFLOW, A, [source("a.parquet"), shared], content="a")
    handmade.publish(STREAMFLOW, A, [source("a.parquet", "v2", late=True), shared], content="a2", care=STRICTER)
    handmade.publish(STREAMFLOW, B, [source("b.parquet"), shared], content="b", hour=1)


def test_writing_twice_is_writing_once(graph_services: Services, handmade: HandmadeCatalog) -> None:
    publish_some(handmade)
    write(graph_services, A, B)
    once = contents(graph_services)
    assert len(once) > 60
    write(graph_services, B, A, A)
    assert contents(graph_services) == once
    assert sink.differences(graph_services, STREAMFLOW, [A, B, C]) == {}


def test_the_order_does_not_matter(graph_services: Services, handmade: HandmadeCatalog) -> None:
    publish_some(handmade)
    handmade.publish(ATLAS, MAP, [upstream(STREAMFLOW, A, "a2"), upstream(STREAMFLOW, B, "b")], content="map")
    found = []
    for order in ((A, B, MAP), (MAP, B, A), (B, MAP, A)):
        with open_graph(graph_services.settings) as graph:
            empty(graph)
        for key in order:
            assert sink.write(graph_services, ATLAS if key == MAP else STREAMFLOW, [key]) == {}
        found.append(contents(graph_services))
    assert found[0] == found[1] == found[2]
    derived = {name[-1] for name in found[0] if name[:4] == ("relation", f"{MAP}@1", "WAS_DERIVED_FROM", "Revision")}
    assert derived == {f"{A}@2", f"{B}@1"}


def test_what_a_key_no_longer_contributes_goes(graph_services: Services, handmade: HandmadeCatalog) -> None:
    """Withdrawn revisions take with them what nothing else refers to."""
    handmade.publish(STREAMFLOW, B, [source("b.parquet"), source("shared.parquet")], content="b")
    write(graph_services, B)
    alone = contents(graph_services)
    handmade.publish(STREAMFLOW, A, [source("a.parquet"), source("shared.parquet")], content="a", hour=1, care=STRICTER)
    handmade.publish(STREAMFLOW, A, [source("a.parquet", "v2"), source("shared.parquet")], content="a2", hour=1)
    write(graph_services, A)
    assert names(graph_services, "Revision") == {f"{A}@1", f"{A}@2", f"{B}@1"}
    handmade.withdraw(STREAMFLOW, A, 1)
    write(graph_services, A)
    assert names(graph_services, "Revision") == {f"{A}@2", f"{B}@1"}
    assert names(graph_services, "Policy") == {"kfm:policy:not-sensitive@2"}
    assert "s3://kfm-ingest/a.parquet?versionId=v1" not in names(graph_services, "SourceObject")
    handmade.withdraw(STREAMFLOW, A, 2)
    write(graph_services, A)
    assert contents(graph_services) == alone
    handmade.withdraw(STREAMFLOW, B, 1)
    write(graph_services, B)
    assert contents(graph_services) == {}


def test_an_upstream_key_stays_as_long_as_something_was_derived_from_it(
    graph_services: Services, handmade: HandmadeCatalog
) -> None:
    handmade.publish(STREAMFLOW, A, content="a")
    handmade.publish(ATLAS, MAP, [upstream(STREAMFLOW, A, "a")], content="map")
    sink.write(graph_services, ATLAS, [MAP])
    before = contents(graph_services)
    write(graph_services, A)
    assert ("relation", f"{MAP}@1", "WAS_DERIVED_FROM", "Revision", f"{A}@1") in contents(graph_services)
    handmade.withdraw(STREAMFLOW, A, 1)
    write(graph_services, A)
    assert contents(graph_services) == before


def test_a_message_announces_what_somebody_used_it_for(graph_services: Services, handmade: HandmadeCatalog) -> None:
    """Two keys that read the same message differently do not keep what only the other said."""
    same = "one for both"
    handmade.publish(STREAMFLOW, A, [source("a.parquet", "v1", message=same), source("a.parquet", "v2")], content="a")
    write(graph_services, A)
    alone = contents(graph_services)
    handmade.publish(STREAMFLOW, B, [source("a.parquet", "v2", message=same)], content="b", hour=0)
    write(graph_services, B)
    handmade.withdraw(STREAMFLOW, B, 1)
    write(graph_services, B)
    assert contents(graph_services) == alone


class Stopped(Exception):
    """Stands in for a kill."""


@contextmanager
def stopping_at(monkeypatch: pytest.MonkeyPatch, statement: int) -> Iterator[None]:
    """Ends the process, as it were, instead of running this statement of a transaction."""

    def interrupted(run: Any, *rest: Any) -> None:
        count = 0

        def counting(text: str, **given: Any) -> Any:
            nonlocal count
            count += 1
            if count == statement:
                raise Stopped
            return run(text, **given)

        show(counting, *rest)

    show = apply.show
    with monkeypatch.context() as patch:
        patch.setattr(sink, "show", interrupted)
        yield


def test_a_kill_between_any_two_statements_is_repaired_by_writing_again(
    graph_services: Services, handmade: HandmadeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    handmade.publish(STREAMFLOW, A, [source("old.parquet")], content="old")
    write(graph_services, A)
    before = contents(graph_services)
    handmade.withdraw(STREAMFLOW, A, 1)
    publish_some(handmade)
    stops = 0
    for statement in range(1, 200, 7):
        with stopping_at(monkeypatch, statement):
            try:
                sink.write(graph_services, STREAMFLOW, [A])
            except Stopped:
                stops += 1
                assert contents(graph_services) == before
            else:
                break
    assert stops > 4
    write(graph_services, A, B)
    after = contents(graph_services)
    with open_graph(graph_services.settings) as graph:
        empty(graph)
    write(graph_services, B, A)
    assert contents(graph_services) == after


def test_a_graph_that_is_away_changes_nothing_and_is_retried(
    graph_services: Services, handmade: HandmadeCatalog
) -> None:
    publish_some(handmade)
    write(graph_services, A)
    before = contents(graph_services)
    with pytest.raises(ServiceUnavailable, match="the graph does not answer"):
        sink.write(without_graph(graph_services), STREAMFLOW, [A, B])
    assert contents(graph_services) == before
    refused = dataclasses.replace(graph_services.settings, graph_password="another")
    with pytest.raises(ServiceUnavailable) as raised:
        sink.write(Services(refused), STREAMFLOW, [A])
    assert "another" not in str(raised.value)


def test_unreadable_documents_are_the_problem_of_one_key(graph_services: Services, handmade: HandmadeCatalog) -> None:
    publish_some(handmade)
    layout = Layout(STREAMFLOW.pipeline)
    for path, data in (
        (layout.item(B), b"[]"),
        (layout.history(B), b'{"links": 7}'),
        (layout.revision(B, 1), b"{"),
        (layout.item(B), b'{"assets": {}}'),
    ):
        kept = graph_services.store.read(path)
        graph_services.store.write(path, data)
        problems = sink.write(graph_services, STREAMFLOW, [A, B])
        assert list(problems) == [B], path
        graph_services.store.write(path, kept)
    write(graph_services, A, B)
    assert names(graph_services, "Revision") == {f"{A}@1", f"{A}@2", f"{B}@1"}


def test_a_key_that_the_graph_refuses_does_not_keep_the_others_out(
    graph_services: Services, handmade: HandmadeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_some(handmade)

    def refusing(run: Any, keys: Any, wanted: Any) -> None:
        if B in keys:
            raise client.GraphRefused("a value it cannot hold")
        apply.show(run, keys, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(sink, "show", refusing)
        assert sink.write(graph_services, STREAMFLOW, [A, B]) == {B: "a value it cannot hold"}
    assert names(graph_services, "Revision") == {f"{A}@1", f"{A}@2"}


def test_two_writers_at_once_leave_what_one_would(graph_services: Services, handmade: HandmadeCatalog) -> None:
    keys = [f"usgs-streamflow:kansas_statewide:none:2025-12-05T{hour:02d}Z:v1-0-0" for hour in range(12)]
    for hour, key in enumerate(keys):
        handmade.publish(STREAMFLOW, key, [source("shared.parquet"), source(key)], content=key, hour=hour)
    failures: list[BaseException] = []

    def work(mine: list[str]) -> None:
        own = Services(graph_services.settings)
        try:
            for key in mine:
                sink.write(own, STREAMFLOW, [key])
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)
        finally:
            own.close()

    workers = [threading.Thread(target=work, args=(order,)) for order in (keys, keys[::-1], keys[3:])]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert failures == []
    together = contents(graph_services)
    with open_graph(graph_services.settings) as graph:
        empty(graph)
    write(graph_services, *keys)
    assert contents(graph_services) == together


def test_even_without_the_lock_writers_collide_without_harm(
    graph_services: Services, handmade: HandmadeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a process that lost its connection is gone while it still writes."""

    @contextmanager
    def unlocked(_database: object) -> Iterator[None]:
        yield

    write(graph_services)  # the schema
    monkeypatch.setattr(sink, "only_writer", unlocked)
    test_two_writers_at_once_leave_what_one_would(graph_services, handmade)


def test_what_is_large_goes_in_parts(
    graph_services: Services, handmade: HandmadeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_some(handmade)
    write(graph_services, A, B)
    whole = contents(graph_services)
    transactions: list[int] = []

    def counting(run: Any, keys: Any, wanted: Any) -> None:
        transactions.append(len(keys))
        apply.show(run, keys, wanted)

    monkeypatch.setattr(sink, "TRANSACTION_SIZE", 10)
    monkeypatch.setattr(apply, "ROWS", 2)
    monkeypatch.setattr(sink, "show", counting)
    with open_graph(graph_services.settings) as graph:
        empty(graph)
    write(graph_services, A, B)
    assert contents(graph_services) == whole
    assert transactions == [1, 1]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("MATCH (r:Revision)-[s:UNDER_POLICY]->() DELETE s", "UNDER_POLICY"),
        ("MATCH (r:Revision) SET r.title = 'another'", "Revision"),
        ("MATCH (k:Key) MATCH (d:Dataset) CREATE (k)-[:WAS_DERIVED_FROM]->(d)", "no longer published"),
        ("MATCH (p:Place) DETACH DELETE p", "Place"),
        ("MATCH (d:Dataset) SET d.title = 'another'", "Dataset"),
        ("MATCH (r:Revision) CREATE (:Activity {id: 'strange', key: r.key})", "strange"),
    ],
)
def test_differences_are_found_and_repaired(
    graph_services: Services, handmade: HandmadeCatalog, damage: str, named: str
) -> None:
    handmade.publish(STREAMFLOW, A, content="a")
    write(graph_services, A)
    before = contents(graph_services)
    with open_graph(graph_services.settings) as graph:
        graph.write(lambda run: run(damage))
    assert named in sink.differences(graph_services, STREAMFLOW, [A])[A]
    write(graph_services, A)
    assert contents(graph_services) == before

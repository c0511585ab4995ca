"""The purge deletes old events, findings and validation reports, a limited number each night."""

import pytest

from kfm_pipelines.operations.retention import purge as purging
from kfm_pipelines.operations.retention.purge import purge
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.stores import Layout
from kfm_pipelines.watermarks.late import reevaluate_lateness
from kfm_pipelines.watermarks.late_lane import LateFilter, find_late_events, release
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.runs.candidates import declaration_path
from kfm_pipelines_tests.fixtures.runs.streams import event_about, record_events, streams
from kfm_pipelines_tests.fixtures.sites.site import Site

OLD, YOUNG = 401, 399


def judged(site: Site, hour: int, days: int, dataset: str = "usgs/streamflow") -> str:
    """Creates a key judged by two gates this many days ago; returns the path of its report."""
    key = site.key(hour)
    parameters = {"key": key, "dataset": dataset, "days": days}
    site.services.database.execute(
        "INSERT INTO kfm.keys (key, dataset, window_start, window_end)"
        " VALUES (%(key)s, %(dataset)s, now(), now() + interval '1 h')",
        parameters,
    )
    site.services.database.execute(
        """
        INSERT INTO kfm.verdicts (key, txn, gate, content_hash, passed, findings, run_id, at)
        SELECT %(key)s, 1, gate, 'a', true, '[]', 'r', now() - make_interval(days => %(days)s)
        FROM unnest(array['schema', 'qa']) AS gate
        """,
        parameters,
    )
    path = Layout(dataset.replace("/", "-")).validation_report(key, 1)
    site.services.store.write(path, b"{}")
    return path


def test_old_findings_and_reports_are_deleted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "VERDICTS_AT_ONCE", 3)
    paths = [judged(site, hour, OLD + 9 - hour) for hour in range(3)]
    undeclared = judged(site, 3, OLD, dataset="no/longer")
    young = judged(site, 4, YOUNG)
    site.services.database.execute(
        """
        INSERT INTO kfm.qa_findings (at, run_id, dataset, gate, rule, severity, subject, expected, measured)
        SELECT now() - make_interval(days => days), 'r', 'a/b', 'g', 'r', 'info', 's', 'e', 'm'
        FROM unnest(array[399, 401]) AS days
        """
    )
    store = site.services.store
    first = purge(site.services)
    assert (first.findings, first.reports) == (1, 2)
    assert [store.exists(path) for path in paths] == [False, False, True]
    assert purge(site.services).reports == 2
    assert purge(site.services).reports == 0
    assert [store.exists(path) for path in (*paths, undeclared, young)] == [False, False, False, False, True]
    assert len(site.fetch("SELECT FROM kfm.verdicts")) == 10


def test_a_replaced_event_is_deleted_with_its_lateness(site: Site) -> None:
    database = site.services.database
    replaced, newer = event_about(1, 10), event_about(1, 11, identity="e" * 64)
    record_events(database, streams("patch"), event_about(9, 9), replaced, newer)
    for state in ("started", "succeeded"):
        database.execute("UPDATE kfm.inbox SET state = %(state)s", {"state": state})
    database.execute("UPDATE kfm.inbox SET archived_at = now(), received_at = now() - interval '9999 d'")
    assert purge(site.services).events == 1
    assert site.fetch("SELECT identity FROM kfm.late") == [{"identity": newer.identity}]


def test_a_replaced_event_stays_while_its_successor_may_turn_out_late(site: Site) -> None:
    """A delayed message may show that the newer event was late; then the older one counts."""
    database, datasets = site.services.database, streams("quarantine")
    change(declaration_path(site), late="quarantine")
    site.services.__dict__.pop("datasets", None)
    replaced, newer = event_about(1, 10), event_about(1, 11, identity="e" * 64)
    record_events(database, datasets, replaced, newer)
    for state in ("started", "succeeded"):
        database.execute("UPDATE kfm.inbox SET state = %(state)s", {"state": state})
    database.execute("UPDATE kfm.inbox SET archived_at = now(), received_at = now() - interval '9999 d'")
    assert purge(site.services).events == 0
    record_events(database, datasets, event_about(9, 10.5))
    reevaluate_lateness(database, datasets)
    with database.transaction() as connection:
        assert [one.identity for one in events_of(connection, newer.key)] == [replaced.identity]
    release(database, datasets, find_late_events(database, LateFilter()), actor="ada", reason="ok")
    database.execute("UPDATE kfm.inbox SET state = 'started' WHERE state = 'received'")
    database.execute("UPDATE kfm.inbox SET state = 'succeeded'")
    assert purge(site.services).events == 1

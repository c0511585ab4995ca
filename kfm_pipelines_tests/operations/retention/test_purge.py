"""The purge takes findings and validation reports that are old, bounded each night, and leaves all else."""

import pytest

from kfm_pipelines.operations.retention import purge as purging
from kfm_pipelines.operations.retention.purge import purge
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.stores import Layout
from kfm_pipelines.watermarks.late import reevaluate_lateness
from kfm_pipelines.watermarks.late_lane import LateFilter, find_late_events, release
from kfm_pipelines_tests.fixtures.runs.replay import declare
from kfm_pipelines_tests.fixtures.runs.streams import hear, streams, told
from kfm_pipelines_tests.fixtures.sites.site import Site

OLD, YOUNG = 401, 399


def judged(site: Site, hour: int, days: int, dataset: str = "usgs/streamflow") -> str:
    """A key that two gates judged so many days ago; where the report about it is."""
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


def test_old_findings_and_reports_are_forgotten(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_replaced_event_is_forgotten_with_what_is_known_of_its_lateness(site: Site) -> None:
    database = site.services.database
    replaced, newer = told(1, 10), told(1, 11, identity="e" * 64)
    hear(database, streams("patch"), told(9, 9), replaced, newer)
    for state in ("started", "succeeded"):
        database.execute("UPDATE kfm.inbox SET state = %(state)s", {"state": state})
    database.execute("UPDATE kfm.inbox SET archived_at = now(), received_at = now() - interval '9999 d'")
    assert purge(site.services).events == 1
    assert site.fetch("SELECT identity FROM kfm.late") == [{"identity": newer.identity}]


def test_what_a_newer_event_replaced_stays_while_that_may_be_held_one_day(site: Site) -> None:
    """A delayed message may still show that the newer one was late; then the older one counts."""
    database, datasets = site.services.database, streams("quarantine")
    declare(site, late="quarantine")
    replaced, newer = told(1, 10), told(1, 11, identity="e" * 64)
    hear(database, datasets, replaced, newer)
    for state in ("started", "succeeded"):
        database.execute("UPDATE kfm.inbox SET state = %(state)s", {"state": state})
    database.execute("UPDATE kfm.inbox SET archived_at = now(), received_at = now() - interval '9999 d'")
    assert purge(site.services).events == 0
    hear(database, datasets, told(9, 10.5))
    reevaluate_lateness(database, datasets)
    with database.transaction() as connection:
        assert [event.identity for event in events_of(connection, newer.key)] == [replaced.identity]
    release(database, datasets, find_late_events(database, LateFilter()), actor="ada", reason="ok")
    database.execute("UPDATE kfm.inbox SET state = 'started' WHERE state = 'received'")
    database.execute("UPDATE kfm.inbox SET state = 'succeeded'")
    assert purge(site.services).events == 1

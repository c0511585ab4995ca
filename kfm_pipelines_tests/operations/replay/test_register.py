"""The history of a bucket becomes keys, and a notification that follows is no second event."""

from datetime import UTC, datetime, timedelta

import pytest

from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.replay.register import register_windows
from kfm_pipelines_tests.fixtures.runs.batches import applied, publish
from kfm_pipelines_tests.fixtures.runs.replay import close_windows, declare, outcomes, planned, started
from kfm_pipelines_tests.fixtures.sites.site import START, Site

END_OF_TIME = (datetime(9999, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC))


@pytest.mark.slow
def test_a_listed_bucket_becomes_keys_and_a_notification_is_no_second_event(site: Site) -> None:
    """The notification of hour 0 comes before registration, that of hour 1 after."""
    site.put(0)
    site.drain()
    site.put(1)
    site.put(2, name="old.parquet")
    site.put(2, name="old.parquet")  # only the current version counts
    notified = site.fetch("SELECT identity FROM kfm.inbox")

    found = register_windows(site.services, site.dataset, START, START + timedelta(hours=5), "ana")

    assert (found.objects, found.events, found.new_keys) == (3, 2, 4)
    [audited] = site.fetch("SELECT actor, detail FROM kfm.audit WHERE action = 'windows-registered'")
    assert (audited["actor"], audited["detail"]["windows"]) == ("ana", 5)
    with pytest.raises(ReplayRefused, match="reaches beyond the calendar; register up to an earlier time"):
        register_windows(site.services, site.dataset, *END_OF_TIME, "ana")
    assert list(found.keys) == [site.key(hour) for hour in range(5)]
    shapes = site.fetch("SELECT shape, count(*) AS n FROM kfm.inbox GROUP BY shape ORDER BY shape")
    assert [(row["shape"], row["n"]) for row in shapes] == [("s3-listing", 2), (shapes[1]["shape"], 1)]
    assert {row["key"] for row in site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL")} == {site.key(0)}
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox WHERE ready_at = 'infinity'") == [{"n": 2}]
    again = register_windows(site.services, site.dataset, START, START + timedelta(hours=5), "ana")
    assert (again.objects, again.events, again.new_keys) == (3, 0, 0)
    before = site.fetch("SELECT identity FROM kfm.inbox ORDER BY identity")
    assert notified[0] in before
    site.drain()  # the notifications of hours 1 and 2, and of the replaced version
    after = site.fetch("SELECT identity FROM kfm.inbox ORDER BY identity")
    assert len(after) == len(before) + 1
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox WHERE key LIKE '%T01Z%'") == [{"n": 1}]
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL ORDER BY key") == [
        {"key": site.key(hour)} for hour in range(3)
    ]
    close_windows(site, START + timedelta(hours=4))
    assert planned(site, 5, "upgrade").left_out[-1].why.startswith("its window is not closed: the watermark is")
    close_windows(site)
    plan = planned(site, 5, "upgrade")
    assert [one.key for one in plan.chosen] == [site.key(hour) for hour in range(3)]
    assert {one.why for one in plan.left_out} == {"no object of its window is known"}


def test_a_registered_window_is_published_by_its_replay_only(site: Site) -> None:
    site.put(1)
    register_windows(site.services, site.dataset, START, START + timedelta(hours=2), "ana")
    close_windows(site)
    plan = planned(site, 2, "upgrade")
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL") == []
    assert started(site, plan.id).state == "done"
    assert outcomes(site, plan.id) == {site.key(1): ["APPLIED"]}


def test_registering_a_late_object_releases_it(site: Site) -> None:
    declare(site, late="quarantine", watermark={"out_of_order": "1 h"})
    site.put(0)
    site.put(10)
    site.drain()
    site.put(1)
    register_windows(site.services, site.dataset, START, START + timedelta(hours=3), "ana")
    rows = site.fetch("SELECT key, state, changed_by FROM kfm.late WHERE is_late")
    assert rows == [{"key": site.key(1), "state": "released", "changed_by": "ana"}]
    audited = site.fetch("SELECT actor, key FROM kfm.audit WHERE action = 'late-released'")
    assert audited == [{"actor": "ana", "key": site.key(1)}]
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL AND key LIKE '%T01Z%'") == []


@pytest.mark.slow
def test_objects_of_open_windows_are_taken_in_when_asked(site: Site) -> None:
    """A new dataset with objects in its bucket: the newest hours are open, and no replay may touch them."""
    for hour in (0, 1, 8):
        site.put(hour)
    end = START + timedelta(hours=9)
    closed = register_windows(site.services, site.dataset, START, end, "ana")
    assert (closed.events, closed.due) == (3, ())
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL") == []

    found = register_windows(site.services, site.dataset, START, end, "ana", include_open=True)

    assert (found.events, found.due) == (0, (site.key(8),))
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL") == [{"key": site.key(8)}]
    [*_, audited] = site.fetch("SELECT detail FROM kfm.audit WHERE action = 'windows-registered' ORDER BY id")
    assert audited["detail"]["include_open"]
    plan = planned(site, 9, "upgrade")
    assert [one.key for one in plan.chosen] == [site.key(0), site.key(1)]
    publish(site.services, site.dataset, found.due, "an ordinary run")
    assert applied(site.services) == {site.key(8): 1}
    again = register_windows(site.services, site.dataset, START, end, "ana", include_open=True)
    assert again.due == ()
    events = site.fetch("SELECT count(*) AS n FROM kfm.inbox")
    site.drain()  # the notifications
    assert site.fetch("SELECT count(*) AS n FROM kfm.inbox") == events
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL ORDER BY key") == [
        {"key": site.key(0)}, {"key": site.key(1)}
    ]  # fmt: skip


def test_open_windows_wait_for_their_due_rule(site: Site) -> None:
    declare(site, due={"when": "on_close", "wait": "6 h"})
    site.put(0)
    found = register_windows(site.services, site.dataset, START, START + timedelta(hours=1), "ana", include_open=True)
    assert found.due == (site.key(0),)
    rows = site.fetch("SELECT key FROM kfm.keys WHERE due_at > clock_timestamp() + interval '5 h'")
    assert rows == [{"key": site.key(0)}]

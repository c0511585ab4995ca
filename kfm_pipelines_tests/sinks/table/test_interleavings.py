"""Whatever happens in whatever order, the table ends as if everything had happened in order."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.sinks.flush import flush_due, write_now
from kfm_pipelines.sinks.table import maintain
from kfm_pipelines.sinks.table.check import differences
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines_tests.fixtures.sinks import assert_table_is_catalog, flush, publish_hours
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.sinks.table.test_crashes import Killed, stopped_at

pytestmark = pytest.mark.slow
HOURS = 3

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, HOURS - 1)),
        st.tuples(st.just("write"), st.integers(0, HOURS - 1)),
        st.tuples(st.just("kill"), st.integers(0, 14)),
        st.tuples(st.just("tick"), st.just(0)),
        st.tuples(st.just("maintain"), st.just(0)),
    ),
    min_size=2,
    max_size=8,
)


def test_any_interleaving_ends_like_the_orderly_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "SMALL_FILES", 2)
    versions = dict.fromkeys(range(HOURS), 0)
    first = publish_hours(site, [HOURS])
    flush(site)

    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(ACTIONS)
    def run(actions: list[tuple[str, int]]) -> None:
        for action, number in actions:
            if action == "publish":
                versions[number] += 1
                publish_hours(site, [number], version=versions[number])
            elif action == "write":
                write_now(site.services, site.dataset, Sink.TABLE, [site.key(number)])
            elif action == "kill":
                with stopped_at(number, "after"), suppress(Killed, ServiceUnavailable):
                    flush(site)
            elif action == "tick":
                site.services.database.execute("UPDATE kfm.outbox SET due = clock_timestamp()")
                flush_due(site.services)
            else:
                maintain.maintain(site.services, site.dataset)
        flush(site)
        published = [site.key(hour) for hour in range(HOURS) if versions[hour]]
        assert differences(site.services, site.dataset, [*first, *published]) == {}
        assert_table_is_catalog(site, [*first, *published])

    run()


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_killed_process_leaves_nothing_that_the_next_cannot_end(site: Site, commits: int) -> None:
    """Its branch was begun, written, or published."""
    keys = publish_hours(site, range(2))
    flush(site)
    publish_hours(site, [1], version=1)
    killer = [sys.executable, "-m", "kfm_pipelines_tests.sinks.table.killer", str(commits)]
    done = subprocess.run(killer, env={**os.environ, **site.environment}, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    flush(site)
    assert_table_is_catalog(site, keys)

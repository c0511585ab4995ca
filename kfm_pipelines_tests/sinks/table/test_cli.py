"""`kfm tables`, as a user types it."""

import json

import pytest

from kfm_pipelines_tests.fixtures.sinks import assert_table_is_catalog, flush, publish_hours, the_table
from kfm_pipelines_tests.fixtures.sites.command import run_kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow


def test_what_the_commands_print(site: Site) -> None:
    empty = run_kfm("tables", "list")
    assert empty.code == 0
    assert "usgs/streamflow" in empty.out
    keys = publish_hours(site, range(2))
    waiting = json.loads(run_kfm("tables", "list", "--json").out)["tables"]
    assert [(one["rows"], one["waiting"]) for one in waiting] == [(0, 2)]
    behind = run_kfm("tables", "check")
    assert behind.code == 1
    assert f"{keys[0]}: the table does not have it" in behind.out
    assert "usgs/streamflow: 2 differences" in behind.out

    rebuilt = run_kfm("tables", "rebuild", "usgs/streamflow")
    assert (rebuilt.code, rebuilt.out) == (0, "2 keys written\n")
    assert_table_is_catalog(site, keys)
    assert run_kfm("tables", "check").out == ("usgs/streamflow: the table has exactly what the catalog has\n")
    publish_hours(site, [1], version=1)
    flush(site)
    history = run_kfm("tables", "history", keys[1]).out
    snapshot = the_table(site).current_snapshot()
    assert snapshot is not None
    assert [line.split()[:2] for line in history.splitlines() if line.strip()[:1] in ("1", "2")][1] == [
        "2",
        str(snapshot.snapshot_id),
    ]
    done = run_kfm("tables", "maintain")
    assert done.out.startswith("usgs/streamflow: 0 periods compacted, 0 snapshots expired")


def test_what_cannot_be_asked(site: Site) -> None:
    unknown = run_kfm("tables", "rebuild", "usgs/rivers")
    assert unknown.code == 1
    assert "is not declared" in unknown.err
    assert "has never had this key" in run_kfm("tables", "history", site.key(9)).out

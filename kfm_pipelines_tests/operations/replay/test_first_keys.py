"""The canary decides: a broken transform stops a replay before its first batch, a good one is published."""

import shutil

import pyarrow as pa
import pytest

from kfm_pipelines.gates.schema_approval import approve
from kfm_pipelines.operations.replay import commands
from kfm_pipelines.stages.compute import split
from kfm_pipelines.stages.compute.process import process_key
from kfm_pipelines.stages.compute.result import Computed
from kfm_pipelines.stages.compute.transforms import TRANSFORMS
from kfm_pipelines.stages.compute.transforms.metric_discharge import metric_discharge
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import ReplayTerms
from kfm_pipelines_tests.fixtures.runs.candidates import candidate_file, declaration_path
from kfm_pipelines_tests.fixtures.runs.replay import (
    PUBLISHED,
    finished,
    key_states,
    moves,
    outcomes,
    planned,
    published_hours,
    read_again,
    records,
)
from kfm_pipelines_tests.fixtures.sites.site import Site


def drops_a_row(table: pa.Table) -> pa.Table:
    return metric_discharge(table).slice(1)


def raises(_: pa.Table) -> pa.Table:
    raise ValueError("38.79812345")


@pytest.mark.slow
def test_an_upgrade_is_tried_compared_and_published_as_new_keys(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = published_hours(site, 3)
    declaration_path(site).write_text(candidate_file(site).read_text())
    candidate_file(site).unlink()
    read_again(site)
    published = site.tree(*PUBLISHED)
    unapproved = commands.start(site.services, planned(site, 3, "upgrade").id, ReplayTerms(canary=1), "ana")
    assert "expected schema version 1, as approved, found discharge_m3s added" in unapproved[0].faults[0]
    approve(site.services, site.dataset, "ana", "one column more")
    new = [key.replace("v1-0-0", "v1-1-0") for key in keys]

    for transform, fault in ((raises, "failed with ValueError"), (drops_a_row, "67 rows, not 68")):
        monkeypatch.setitem(TRANSFORMS, "metric_discharge", transform)
        plan = planned(site, 3, "upgrade")
        assert [(one.key, one.source, one.why) for one in plan.chosen] == [
            (key, old, "of version v1-0-0, revision 1") for key, old in zip(new, keys, strict=True)
        ]
        tried = commands.start(site.services, plan.id, ReplayTerms(here=True, canary=2), "ana")
        stopped = finished(site, plan.id)
        assert [fault in "; ".join(one.faults) for one in tried] == [True, True]
        assert stopped.state == "stopped"
        assert stopped.note.startswith(f"2 of the first 2 keys are not good: {new[0]}: ")
        assert fault in stopped.note
        assert "38.79" not in stopped.note
        assert outcomes(site, plan.id) == {}
        assert site.fetch("SELECT * FROM kfm.replay_batches") == []
        assert [what for what, _ in moves(site, plan.id)] == ["planned", "started", "canary-bad"]
        assert site.tree(*PUBLISHED) == published
    monkeypatch.undo()

    plan = planned(site, 3, "upgrade")
    commands.start(site.services, plan.id, ReplayTerms(here=True, canary=2), "ana")
    done = finished(site, plan.id)

    assert (done.state, done.note) == ("done", "3 keys done")
    assert outcomes(site, plan.id) == {key: ["APPLIED"] for key in new}
    compared = site.services.database.fetch(
        "SELECT key, comparison FROM kfm.replay_keys WHERE replay = %(id)s AND canary ORDER BY place", {"id": plan.id}
    )
    assert [row["key"] for row in compared] == [new[0], new[2]]
    report = compared[0]["comparison"]
    assert (report["published_rows"], report["candidate_rows"], report["faults"]) == (68, 68, [])
    assert [(one["column"], one["what"]) for one in report["columns"]] == [("discharge_m3s", "added")]
    assert published.items() <= site.tree("objects", "processed").items() | {
        (path, digest) for path, digest in published.items() if path.startswith("catalog")
    }
    with pytest.raises(Exception, match="is published already, revision 1"):
        planned(site, 3, "upgrade")


@pytest.mark.slow
def test_a_reproduction_that_does_not_come_out_the_same_publishes_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_hours(site, 2)
    shutil.rmtree(site.data / "objects")  # only the digest is left to compare with
    with monkeypatch.context() as patch:
        patch.setattr(split, "process_key", lambda *given: Computed(process_key(*given).table.slice(1)))
        [other] = commands.start(site.services, planned(site, 2).id, ReplayTerms(here=True, canary=1), "ana")
    assert other.faults[-1].startswith("it does not come out as revision 1 did")
    plan = planned(site, 2)
    site.put(1, name="more.parquet")
    site.drain()
    [first, second] = commands.start(site.services, plan.id, ReplayTerms(here=True, canary=2), "ana")
    assert first.faults == ()
    assert first.report["identical"]
    assert "more.parquet came after revision 1" in second.faults[0]
    assert replays.read(site.services.database, plan.id).state == "stopped"
    written = {one["key"]: (one["outcome"], one["validation_fail_reason"]) for one in records(site, plan.id)}
    assert written == {first.key: (None, None), second.key: ("REFUSED", second.faults[0])}
    assert set(key_states(site, plan.id).values()) == {"waiting"}

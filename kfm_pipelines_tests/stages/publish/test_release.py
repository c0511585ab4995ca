"""`publish` publishes nothing without green verdicts on exactly the staged bytes, and records why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import dagster as dg
import pytest

from kfm_pipelines.care.governance import governance_of
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.stages.publish.release import input_facts
from kfm_pipelines_tests.fixtures.runs.batches import ManualRun, applied, publish_due
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

HOURS = count()


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all tests here; each takes a key of its own."""
    root = tmp_path_factory.mktemp("release") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        yield opened


@dataclass(frozen=True)
class Refusal:
    arrange: Callable[[ManualRun], object]
    error: str
    reason: str


def _not_staged(_: ManualRun) -> None:
    pass


def _without_a_verdict(run: ManualRun) -> None:
    run.claim_to_be_validated()
    run.stage()


def _judged_other_bytes(run: ManualRun) -> None:
    run.judge("0" * 64, passed=True)
    run.claim_to_be_validated()
    run.stage()


def _red(run: ManualRun) -> None:
    run.judge(run.masked_hash, passed=False)
    run.claim_to_be_validated()
    run.stage()


def _data_changed(run: ManualRun) -> None:
    run.validate()
    run.stage()
    run.overwrite(run.layout.staged_data)


def _item_changed(run: ManualRun) -> None:
    run.validate()
    run.stage()
    run.overwrite(run.layout.staged_item)


REFUSALS = {
    "not staged": Refusal(_not_staged, "GateRefused", "this transaction has not been through stage_atomic; run the"),
    "no verdict": Refusal(_without_a_verdict, "GateRefused", "the schema gate has given no verdict in this"),
    "verdict about other bytes": Refusal(
        _judged_other_bytes, "GateRefused", "the schema gate judged other bytes than the ones staged"
    ),
    "red verdict": Refusal(_red, "GateRefused", "the schema gate is red"),
    "staged data changed": Refusal(_data_changed, "IntegrityBroken", "data.parquet is not what was staged"),
    "staged Item changed": Refusal(_item_changed, "IntegrityBroken", "item.json is not what was staged"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_nothing_is_published_without_a_green_verdict_on_the_staged_bytes(site: Site, case: Refusal) -> None:
    run = ManualRun(site, next(HOURS))
    case.arrange(run)

    assert run.batch.publish([run.key]) == {}

    _assert_refused(run, "publish", case.error, case.reason)


def test_what_changed_after_it_was_judged_is_not_staged(site: Site) -> None:
    run = ManualRun(site, next(HOURS))
    run.validate()
    run.overwrite(run.layout.masked_table)

    assert run.batch.stage([run.key]) == []
    assert run.batch.publish([run.key]) == {}

    _assert_refused(run, "stage", "IntegrityBroken", "the masked table changed after it was judged")


def test_an_untouched_manual_run_is_published(site: Site) -> None:
    """Otherwise the refusals above would prove nothing."""
    run = ManualRun(site, next(HOURS))
    run.validate()
    run.stage()

    assert list(run.batch.publish([run.key])) == [run.key]


def test_publish_launched_alone_refuses(site: Site) -> None:
    hour = next(HOURS)
    site.put(hour)
    site.drain()
    key = site.key(hour)
    job = build_definitions(site.services.settings.resources).resolve_job_def("usgs_streamflow")

    with open_instance() as instance:
        instance.add_dynamic_partitions("usgs_streamflow", [key])
        result = job.execute_in_process(
            instance=instance,
            partition_key=key,
            asset_selection=[dg.AssetKey(["usgs", "streamflow", "publish"])],
            raise_on_error=False,
        )

    assert not result.success
    [failure] = result.get_step_failure_events()
    error = failure.step_failure_data.error
    assert error is not None
    assert f"1 key was not published:\n{key}: was not taken by this run" in error.message
    assert [path for path in site.tree() if key in path] == []
    publish_due(site)
    assert applied(site.services)[key] == 1


def test_an_input_logged_before_lateness_was_recorded_is_not_late(site: Site) -> None:
    uri = "s3://bucket/object"
    source = {"uri": uri, "version": None, "event": "e" * 64}
    computed = {"etags": {uri: "etag"}, "sizes": {uri: 1}, "sha256": {uri: "f" * 64}}
    rules = governance_of(site.services, site.dataset).rules_for(site.key())
    assert not input_facts(source, computed, rules).late
    assert input_facts({**source, "late": True}, computed, rules).late


def _assert_refused(run: ManualRun, stage: str, error: str, reason: str) -> None:
    [letter] = run.site.fetch(f"SELECT failure_stage, error, reason FROM kfm.dead_letters WHERE key = '{run.key}'")
    assert (letter["failure_stage"], letter["error"]) == (stage, error)
    assert letter["reason"].startswith(f"{run.key}: {reason}")
    assert run.batch.notes[run.key] == letter["reason"]
    assert run.site.fetch("SELECT outcome FROM kfm.wal ORDER BY id DESC LIMIT 1") == [{"outcome": "FAILED"}]
    assert run.site.tree() == run.before

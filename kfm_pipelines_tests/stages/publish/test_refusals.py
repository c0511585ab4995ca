"""`publish` trusts nobody: without green verdicts about exactly the staged bytes it publishes nothing and says why."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import dagster as dg
import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.gates import GATES, TABLE_GATES
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.handoff import Handoff
from kfm_pipelines.state import transactions
from kfm_pipelines.state.verdicts import GateVerdict, record_verdict
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.sites.site import Site


class ByHand:
    """One key taken through the stages one by one, its hand-offs put where the IO manager puts them."""

    def __init__(self, site: Site) -> None:
        site.put()
        site.drain()
        self.site = site
        self.key = site.key()
        self.store = site.services.store
        self.batch = Batch(site.services, site.dataset, "a-run-by-hand")
        self.layout = Layout(site.dataset.pipeline)
        [computed] = self._kept(self.batch.compute([self.key]), self.layout.computed_table)
        [self.masked] = self._kept(self.batch.mask([computed]), self.layout.masked_table)

    def validate(self) -> None:
        assert all(judgement.verdict.passed for judgement in self.batch.validate([self.masked]))

    def claim_to_be_validated(self) -> None:
        """What somebody would write who wants to get past the gates."""
        detail = {"gates": list(GATES), "content_hash": self.masked.content_hash}
        transactions.advance(self.site.services.database, self.masked.claim, Step.VALIDATE, detail)

    def judge(self, content_hash: str, *, passed: bool) -> None:
        database = self.site.services.database
        for gate in TABLE_GATES:
            judged = GateVerdict(gate, content_hash, passed, ())
            record_verdict(database, self.masked.claim, "usgs/streamflow", judged)

    def stage(self) -> None:
        assert {judgement.key for judgement in self.batch.stage([self.key])} == {self.key}

    def overwrite(self, path: Callable[[str, int], str]) -> None:
        self.store.write(path(self.key, self.masked.claim.epoch), b"other bytes")

    def _kept(self, handoffs: Iterable[Handoff], path: Callable[[str, int], str]) -> list[Handoff]:
        kept = []
        for handoff in handoffs:
            self.store.write(path(handoff.claim.key, handoff.claim.epoch), handoff.data)
            kept.append(handoff)
        return kept


@dataclass(frozen=True)
class Refusal:
    arrange: Callable[[ByHand], object]
    error: str
    says: str


def _not_staged(_: ByHand) -> None:
    pass


def _without_a_verdict(run: ByHand) -> None:
    run.claim_to_be_validated()
    run.stage()


def _judged_other_bytes(run: ByHand) -> None:
    run.judge("0" * 64, passed=True)
    run.claim_to_be_validated()
    run.stage()


def _red(run: ByHand) -> None:
    run.judge(run.masked.content_hash, passed=False)
    run.claim_to_be_validated()
    run.stage()


def _data_changed(run: ByHand) -> None:
    run.validate()
    run.stage()
    run.overwrite(run.layout.staged_data)


def _item_changed(run: ByHand) -> None:
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
    run = ByHand(site)
    case.arrange(run)

    assert run.batch.publish([run.key]) == {}

    _assert_refused(run, "publish", case.error, case.says)


def test_what_changed_after_it_was_judged_is_not_staged(site: Site) -> None:
    run = ByHand(site)
    run.validate()
    run.overwrite(run.layout.masked_table)

    assert run.batch.stage([run.key]) == []
    assert run.batch.publish([run.key]) == {}

    _assert_refused(run, "stage", "IntegrityBroken", "the masked table changed after it was judged")


def test_by_hand_and_untouched_it_is_published(site: Site) -> None:
    """Else the refusals above would prove nothing."""
    run = ByHand(site)
    run.validate()
    run.stage()

    assert list(run.batch.publish([run.key])) == [run.key]


def test_publish_launched_alone_refuses(site: Site) -> None:
    site.put()
    site.drain()
    job = build_definitions(site.services.settings.resources).resolve_job_def("usgs_streamflow")

    with open_instance() as instance:
        instance.add_dynamic_partitions("usgs_streamflow", [site.key()])
        result = job.execute_in_process(
            instance=instance,
            partition_key=site.key(),
            asset_selection=[dg.AssetKey(["usgs", "streamflow", "publish"])],
            raise_on_error=False,
        )

    assert not result.success
    [failure] = result.get_step_failure_events()
    error = failure.step_failure_data.error
    assert error is not None
    assert f"1 key was not published:\n{site.key()}: was not taken by this run" in error.message
    assert site.tree() == {}
    assert site.work()["published"] == 1


def _assert_refused(run: ByHand, stage: str, error: str, says: str) -> None:
    [letter] = run.site.fetch("SELECT key, failure_stage, error, reason FROM kfm.dead_letters")
    assert (letter["key"], letter["failure_stage"], letter["error"]) == (run.key, stage, error)
    assert letter["reason"].startswith(f"{run.key}: {says}")
    assert run.batch.notes[run.key] == letter["reason"]
    assert run.site.fetch("SELECT outcome FROM kfm.wal ORDER BY id DESC LIMIT 1") == [{"outcome": "FAILED"}]
    assert run.site.tree() == {}

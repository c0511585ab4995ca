"""The cost of each stage of each attempt is recorded, whatever its outcome."""

import pytest

from kfm_pipelines.energy import meter
from kfm_pipelines.energy.ledger import monthly_totals, transaction_totals
from kfm_pipelines.energy.meter import MachineCounter
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.stages import batch
from kfm_pipelines.stages.publish import release
from kfm_pipelines_tests.fixtures.runs.batches import publish, receive, upload
from kfm_pipelines_tests.fixtures.runs.energy import stage_totals
from kfm_pipelines_tests.fixtures.sites.site import Site

STAGES = ["compute", "mask", "validate", "stage", "publish"]


def test_the_cost_of_a_run_is_that_of_its_stages(site: Site) -> None:
    receive(site.services, upload(site))
    publish(site.services, site.dataset, [site.key()], "a-run")
    by_stage = stage_totals(site.services.database, "a-run")
    assert list(by_stage) == STAGES
    [whole] = transaction_totals(site.services.database, site.key(), 1)
    assert whole.energy.method == "estimated"
    assert whole.usage.missing == ()
    assert whole.energy.watt_seconds == pytest.approx(sum(one.energy.watt_seconds or 0 for [one] in by_stage.values()))
    [month] = monthly_totals(site.services.database)
    assert (month.dataset, month.runs, month.keys, month.wasted_share) == ("usgs/streamflow", 1, 1, 0)


def test_failed_and_successful_attempts_both_count(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise ServiceUnavailable("the store is away")

    receive(site.services, upload(site))
    with monkeypatch.context() as patch:
        patch.setattr(release, "stage_candidate", away)
        publish(site.services, site.dataset, [site.key()], "unlucky")
    publish(site.services, site.dataset, [site.key()], "lucky")
    assert list(stage_totals(site.services.database, "unlucky")) == STAGES[:4]
    [unlucky] = transaction_totals(site.services.database, site.key(), 1)
    [lucky] = transaction_totals(site.services.database, site.key(), 2)
    [month] = monthly_totals(site.services.database)
    assert (month.runs, month.total.entries) == (2, 9)
    spent, wasted = month.total.energy.watt_seconds, unlucky.energy.watt_seconds
    assert spent == pytest.approx((wasted or 0) + (lucky.energy.watt_seconds or 0))
    assert month.wasted_share == pytest.approx((wasted or 0) / (spent or 1))


def test_energy_of_the_counters_is_recorded_as_measured(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With counters that advance by a watt-second at each reading."""
    counter = MachineCounter(lambda: {"package-0": 1 / 3_600_000})
    monkeypatch.setattr(meter, "_counter", lambda: counter)
    receive(site.services, upload(site))
    publish(site.services, site.dataset, [site.key()], "a-run")
    by_stage = stage_totals(site.services.database, "a-run")
    assert list(by_stage) == STAGES
    assert {one.energy.method for spent in by_stage.values() for one in spent} == {"measured"}
    [whole] = transaction_totals(site.services.database, site.key(), 1)
    assert whole.energy.watt_seconds == pytest.approx(
        sum(one.energy.watt_seconds or 0 for spent in by_stage.values() for one in spent)
    )
    assert (whole.energy.watt_seconds or 0) >= 6  # compute is metered in two parts
    assert whole.usage.watt_seconds == whole.energy.watt_seconds


def test_an_interrupted_stage_is_recorded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    receive(site.services, upload(site))
    monkeypatch.setattr(batch, "write_published", stopped)
    with pytest.raises(KeyboardInterrupt):
        publish(site.services, site.dataset, [site.key()], "stopped")
    assert list(stage_totals(site.services.database, "stopped")) == STAGES[:2]

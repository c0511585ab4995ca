"""A real site is brought into each condition, and the alerts that fire on what it tells are those that should."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.kill_switch.switch import kill
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines_tests.fixtures.care.register import sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.dispatch import parquet, spoiled
from kfm_pipelines_tests.fixtures.runs.replay import declare
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site
from kfm_pipelines_tests.fixtures.stores.full_disk import full_disk
from kfm_pipelines_tests.fixtures.telemetry.alert_rules import Fires, needs_promtool
from kfm_pipelines_tests.fixtures.telemetry.conditions import Watch

pytestmark = [needs_promtool, pytest.mark.slow]

NOW = (datetime.now(UTC) - START) // timedelta(hours=1) - 1  # the last hour that is over, as sites count them
RUN_FAILED = Fires("KfmRunFailed", "ticket")
GATE_RED = Fires("KfmGateRed", "ticket")
SLOW_BURN = Fires("KfmErrorBudgetBurn", "ticket")
FAST_BURN = Fires("KfmErrorBudgetBurn", "page")
LETTERS_GROW = Fires("KfmDeadLettersGrow", "page")
LETTERS_WAIT = Fires("KfmDeadLettersWait", "ticket")
STALE = Fires("KfmStale", "ticket")
VERY_STALE = Fires("KfmStale", "page")


@pytest.fixture
def watch(site: Site, tmp_path: Path) -> Watch:
    return Watch(site, tmp_path)


@pytest.fixture
def impatient(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """A site that tries a key twice."""
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, KFM_MAX_ATTEMPTS="2") as site:
        yield site


def test_a_site_where_all_goes_well(site: Site, watch: Watch) -> None:
    for hour in range(NOW - 3, NOW + 1):
        site.put(hour)
    assert site.work()["published"] == 4
    for minutes in (1, 30, 150):
        watch.expect(after_minutes=minutes)


def test_messages_that_nobody_can_read(site: Site, watch: Watch) -> None:
    site.send_all(["rubbish"] * 12)
    site.drain()
    watch.expect(LETTERS_GROW, after_minutes=3)
    watch.expect(after_minutes=30)
    watch.expect(LETTERS_WAIT, after_minutes=4 * 60 + 2)


def test_messages_that_are_known_already(site: Site, watch: Watch) -> None:
    put = site.put(NOW)
    site.drain()
    site.send_all([site.s3_message(put)] * 25)
    site.work()
    watch.expect(Fires("KfmDuplicateSpike", "ticket"), after_minutes=15)


def test_a_red_key(site: Site, watch: Watch) -> None:
    site.put(NOW, spoiled(NOW))
    site.work()
    watch.expect(GATE_RED, after_minutes=2)
    watch.expect(GATE_RED, RUN_FAILED, after_minutes=20)


def test_a_register_that_cannot_be_masked(site: Site, watch: Watch) -> None:
    register = with_reviewer(site)
    register.put(sites(register.dataset, sensitivity=["nobody knows"] * 60))
    assert site.work()["failed"] == 1
    # The register is of a month long ago.
    lags = Fires("KfmWatermarkLags", "ticket")
    watch.expect(Fires("KfmMaskingFailed", "page"), after_minutes=2)
    watch.expect(Fires("KfmMaskingFailed", "page"), RUN_FAILED, lags, after_minutes=35)


def test_a_key_that_is_tried_too_often(impatient: Site, tmp_path: Path) -> None:
    watch = Watch(impatient, tmp_path)
    impatient.put(NOW)
    with full_disk("work/restricted"):
        assert impatient.work()["failed"] == 1
    watch.expect(Fires("KfmRetriesExhausted", "ticket"), RUN_FAILED, after_minutes=20)


def test_half_of_the_keys_fail(site: Site, watch: Watch) -> None:
    for hour in range(NOW - 21, NOW + 1):
        site.put(hour, spoiled(hour) if hour % 2 else None)
    assert site.work()["failed"] == 11
    watch.expect(FAST_BURN, GATE_RED, LETTERS_GROW, after_minutes=3)
    watch.expect(SLOW_BURN, GATE_RED, after_minutes=20)


def test_everything_takes_an_hour(site: Site, watch: Watch) -> None:
    for hour in range(NOW - 21, NOW + 1):
        site.put(hour)
    site.drain()
    site.services.database.execute("UPDATE kfm.inbox SET sent_at = sent_at - interval '1 hour'")
    assert site.work()["published"] == 22
    watch.expect(FAST_BURN, after_minutes=3)
    watch.expect(SLOW_BURN, after_minutes=20)


def test_a_publication_of_a_few_rows(site: Site, watch: Watch) -> None:
    put = site.put(NOW)
    site.work()
    few = streamflow_table(START + timedelta(hours=NOW)).slice(0, 10)
    site.put(NOW, data=parquet(few), name=put.object_key.rsplit("/", 1)[1])
    assert site.work()["published"] == 1
    watch.expect(Fires("KfmPublishAnomaly", "ticket"), after_minutes=2)


def test_a_dataset_that_nothing_comes_of_any_more(site: Site, watch: Watch) -> None:
    site.put(NOW)
    site.work()
    watch.expect(after_minutes=170)
    watch.expect(STALE, after_minutes=190)
    watch.expect(STALE, VERY_STALE, after_minutes=370)


def test_a_watermark_that_stands_still(site: Site, watch: Watch) -> None:
    site.put(NOW - 48)
    site.work()
    watch.expect(after_minutes=20)
    watch.expect(Fires("KfmWatermarkLags", "ticket"), after_minutes=40)


def test_an_event_that_is_late_and_held(site: Site, tmp_path: Path) -> None:
    declare(site, late="quarantine")
    watch = Watch(site, tmp_path)
    readings = streamflow_table(START + timedelta(hours=NOW - 9))
    site.put(NOW - 9, data=parquet(readings.slice(0, 40)))
    for hour in range(NOW - 8, NOW + 1):
        site.put(hour)
    site.work()
    site.put(NOW - 9, name="late.parquet", data=parquet(readings.slice(40)))
    site.drain()
    watch.expect(after_minutes=150)
    watch.expect(Fires("KfmLateEventsHeld", "ticket"), STALE, VERY_STALE, after_minutes=27 * 60)


def test_a_dataset_that_is_killed(site: Site, watch: Watch) -> None:
    kill(site.services, "usgs/streamflow", "a test", "to see who notices")
    watch.expect(after_minutes=23 * 60)
    watch.expect(Fires("KfmKilledForLong", "ticket"), after_minutes=25 * 60)


def test_a_revision_that_repeats_the_one_before(site: Site, watch: Watch) -> None:
    """The database itself refuses it, so it has to look away."""
    site.put(NOW)
    site.work()
    site.services.database.execute("ALTER TABLE kfm.revisions DISABLE TRIGGER USER")
    site.services.database.execute(
        """
        INSERT INTO kfm.revisions
            (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id)
        SELECT key, 2, 2, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id FROM kfm.revisions
        """
    )
    watch.expect(Fires("KfmDoubleApply", "page"), after_minutes=1)


def test_a_pipeline_that_falls_silent(site: Site, watch: Watch) -> None:
    site.put(NOW)
    site.work()
    watch.expect(after_minutes=8, silent=True)
    watch.expect(Fires("KfmTelemetryMissing", "page"), after_minutes=18, silent=True)


def test_telemetry_that_is_dropped(site: Site, watch: Watch) -> None:
    assert not site.services.telemetry.records.write("energy-v2", {"no": "such thing"})
    site.services.telemetry.flush()
    watch.expect(Fires("KfmTelemetryDropped", "ticket"), after_minutes=2)

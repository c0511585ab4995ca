"""A real site is brought into each condition, and exactly the right alerts fire on its metrics."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.kill_switch.switch import kill
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines_tests.fixtures.care.register import sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.runs.dispatch import parquet, spoiled
from kfm_pipelines_tests.fixtures.runs.replay import declare
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site
from kfm_pipelines_tests.fixtures.stores.full_disk import full_disk
from kfm_pipelines_tests.fixtures.telemetry.alert_rules import Fires, needs_promtool
from kfm_pipelines_tests.fixtures.telemetry.conditions import Watch

pytestmark = [needs_promtool, pytest.mark.slow]

NOW = (datetime.now(UTC) - START) // timedelta(hours=1) - 1  # the last complete hour, counted from START
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
    """A site that attempts a key twice."""
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, KFM_MAX_ATTEMPTS="2") as site:
        yield site


def test_a_healthy_site(site: Site, watch: Watch) -> None:
    for hour in range(NOW - 3, NOW + 1):
        site.put(hour)
    assert work_in_batches(site)["published"] == 4
    watch.expect({1: [], 30: [], 150: []})


def test_unreadable_messages(site: Site, watch: Watch) -> None:
    site.send_all(["rubbish"] * 12)
    site.drain()
    watch.expect({3: [LETTERS_GROW], 30: [], 4 * 60 + 2: [LETTERS_WAIT]})


def test_duplicate_messages(site: Site, watch: Watch) -> None:
    put = site.put(NOW)
    site.drain()
    site.send_all([site.s3_message(put)] * 25)
    work_in_batches(site)
    watch.expect({15: [Fires("KfmDuplicateSpike", "ticket")]})


def test_a_red_key(site: Site, watch: Watch) -> None:
    site.put(NOW, spoiled(NOW))
    site.work()
    watch.expect({2: [GATE_RED], 20: [GATE_RED, RUN_FAILED]})


def test_a_register_that_cannot_be_masked(site: Site, watch: Watch) -> None:
    register = with_reviewer(site)
    register.put(sites(register.dataset, sensitivity=["nobody knows"] * 60))
    assert site.work()["failed"] == 1
    # The register is of a month long ago.
    lags = Fires("KfmWatermarkLags", "ticket")
    watch.expect({2: [Fires("KfmMaskingFailed", "page")], 35: [Fires("KfmMaskingFailed", "page"), RUN_FAILED, lags]})


def test_a_key_that_exhausts_its_attempts(impatient: Site, tmp_path: Path) -> None:
    watch = Watch(impatient, tmp_path)
    impatient.put(NOW)
    with full_disk("work/masked"):
        assert impatient.work()["failed"] == 1
    watch.expect({20: [Fires("KfmRetriesExhausted", "ticket"), RUN_FAILED]})


def test_half_of_the_keys_fail(site: Site, watch: Watch) -> None:
    for hour in range(NOW - 21, NOW + 1):
        site.put(hour, spoiled(hour) if hour % 2 else None)
    assert work_in_batches(site)["failed"] == 11
    watch.expect({3: [FAST_BURN, GATE_RED, LETTERS_GROW], 20: [SLOW_BURN, GATE_RED]})


def test_everything_takes_an_hour(site: Site, watch: Watch) -> None:
    for hour in range(NOW - 21, NOW + 1):
        site.put(hour)
    site.drain()
    site.services.database.execute("UPDATE kfm.inbox SET sent_at = sent_at - interval '1 hour'")
    assert work_in_batches(site)["published"] == 22
    watch.expect({3: [FAST_BURN], 20: [SLOW_BURN]})


def test_a_publication_of_a_few_rows(site: Site, watch: Watch) -> None:
    put = site.put(NOW)
    work_in_batches(site)
    few = streamflow_table(START + timedelta(hours=NOW)).slice(0, 10)
    site.put(NOW, data=parquet(few), name=put.object_key.rsplit("/", 1)[1])
    assert work_in_batches(site)["published"] == 1
    watch.expect({2: [Fires("KfmPublishAnomaly", "ticket")]})


def test_a_stale_dataset(site: Site, watch: Watch) -> None:
    site.put(NOW)
    work_in_batches(site)
    watch.expect({170: [], 190: [STALE], 370: [STALE, VERY_STALE]})


def test_a_watermark_that_stands_still(site: Site, watch: Watch) -> None:
    site.put(NOW - 48)
    work_in_batches(site)
    watch.expect({20: [], 40: [Fires("KfmWatermarkLags", "ticket")]})


def test_a_late_event_that_is_held(site: Site, tmp_path: Path) -> None:
    declare(site, late="quarantine")
    watch = Watch(site, tmp_path)
    readings = streamflow_table(START + timedelta(hours=NOW - 9))
    site.put(NOW - 9, data=parquet(readings.slice(0, 40)))
    for hour in range(NOW - 8, NOW + 1):
        site.put(hour)
    work_in_batches(site)
    site.put(NOW - 9, name="late.parquet", data=parquet(readings.slice(40)))
    site.drain()
    watch.expect({150: [], 27 * 60: [Fires("KfmLateEventsHeld", "ticket"), STALE, VERY_STALE]})


def test_a_dataset_that_is_killed(site: Site, watch: Watch) -> None:
    kill(site.services, "usgs/streamflow", "a test", "to see who notices")
    watch.expect({23 * 60: [], 25 * 60: [Fires("KfmKilledForLong", "ticket")]})


def test_a_revision_that_repeats_the_one_before(site: Site, watch: Watch) -> None:
    """With the trigger that would refuse it disabled."""
    site.put(NOW)
    work_in_batches(site)
    site.services.database.execute("ALTER TABLE kfm.revisions DISABLE TRIGGER USER")
    site.services.database.execute(
        """
        INSERT INTO kfm.revisions
            (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id)
        SELECT key, 2, 2, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id FROM kfm.revisions
        """
    )
    watch.expect({1: [Fires("KfmDoubleApply", "page")]})


def test_a_pipeline_that_stops_emitting(site: Site, watch: Watch) -> None:
    site.put(NOW)
    work_in_batches(site)
    watch.expect({8: [], 18: [Fires("KfmTelemetryMissing", "page")]}, silent=True)


def test_telemetry_that_is_dropped(site: Site, watch: Watch) -> None:
    assert not site.services.telemetry.records.write("energy-v2", {"no": "such thing"})
    site.services.telemetry.flush()
    watch.expect({2: [Fires("KfmTelemetryDropped", "ticket")]})

"""A whole site with a collector that accepts everything, and with one that never answers."""

from pathlib import Path

import pytest

from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.telemetry.metrics.reader import read_totals
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site
from kfm_pipelines_tests.fixtures.telemetry.collectors import black_hole, receiver
from kfm_pipelines_tests.fixtures.telemetry.signals import span_names

PUBLISHED = "SELECT count(*) AS n FROM kfm.revisions"


@pytest.mark.slow
def test_a_collector_that_never_answers_loses_no_work(stack: Stack, site_template: str, tmp_path: Path) -> None:
    """Everything is published and in the files, and failed batches are counted."""
    postgres = stack.environment["KFM_POSTGRES_URL"]
    with (
        black_hole() as address,
        opened_site(tmp_path / "site", postgres, site_template, OTEL_EXPORTER_OTLP_ENDPOINT=address) as site,
    ):
        for hour in (0, 1, 2, 6):
            site.put(hour)
        result = kfm(site.environment, "work", "--once", "--json")
        assert result.json["published"] == 4
        assert "Traceback" not in result.err
        assert site.fetch(PUBLISHED) == [{"n": 4}]
        site.services.close()
        totals = read_totals(site.root / "telemetry")
        assert totals.counter("keys_settled_total", outcome="APPLIED") == 4
        assert span_names(site.root).count("publish") == 4
        assert totals.counter("telemetry_dropped_total", signal="span") > 0


@pytest.mark.slow
def test_runs_of_the_daemon_send_everything_before_they_end(site: Site) -> None:
    """A run lives for seconds and metrics are sent once a minute, so they arrive because the process ends."""
    with receiver() as collector:
        environment = {**site.environment, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
        with serve_dagster(site.root, environment):
            site.put()
            assert eventually(lambda: site.fetch(PUBLISHED) == [{"n": 1}], seconds=120)
            assert eventually(lambda: "publish" in {span.name for span in collector.spans}, seconds=20)
            assert eventually(lambda: "keys_settled_total" in {one.name for one in collector.metrics}, seconds=20)
    assert site.fetch("SELECT count(*) AS n FROM kfm.wal WHERE outcome = 'APPLIED'") == [{"n": 1}]

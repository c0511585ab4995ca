"""A site whose collector never answers; what one that does receives is in `journeys/test_daemon.py`."""

from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.telemetry.metrics.reader import read_totals
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import opened_site
from kfm_pipelines_tests.fixtures.telemetry.collectors import black_hole
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

"""A backfill started in Dagster's UI, in a real browser, among a year of other partitions.

With KFM_SCREENSHOTS set to a folder, the pictures of docs/backfill.md are taken on the way.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
HOURS = 10
# The last hour begins at nine and three hours may be out of order: windows that end by six are closed.
CLOSED = 6
A_YEAR = 8760
TIMEOUT_MS = 120_000


@contextmanager
def a_browser(url: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(base_url=url, viewport={"width": 1300, "height": 760})
        page.set_default_timeout(TIMEOUT_MS)
        expect.set_options(timeout=TIMEOUT_MS)
        try:
            yield page
        finally:
            browser.close()


def test_a_backfill_skips_unchanged_keys_and_explains_open_windows(site: Site) -> None:
    for hour in range(HOURS):
        site.put(hour)
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("usgs_streamflow", [site.key(-hour) for hour in range(A_YEAR, 0, -1)])
    with serve_dagster(site.root, site.environment) as server, a_browser(server.url) as page:
        assert eventually(lambda: site.fetch("SELECT count(*) AS n FROM kfm.revisions") == [{"n": HOURS}], seconds=120)
        _assert_all_partitions_are_listed(page)
        backfill = _launch(page, "2025-12-04T0", HOURS)
        _assert_it_is_over(page, backfill)
        _assert_the_run_gives_the_reason(page, backfill)

    rows = site.fetch("SELECT key, step, outcome FROM kfm.wal WHERE outcome = 'SKIPPED' ORDER BY key")
    assert [row["key"] for row in rows] == [site.key(hour) for hour in range(CLOSED)]
    assert site.fetch("SELECT count(*) AS n FROM kfm.revisions") == [{"n": HOURS}]
    assert site.fetch("SELECT count(*) AS n FROM kfm.dead_letters") == [{"n": 0}]


def _assert_all_partitions_are_listed(page: Page) -> None:
    page.goto("/assets/usgs/streamflow/publish?view=partitions")
    expect(page.get_by_text(f"Missing ({A_YEAR})")).to_be_visible()
    expect(page.get_by_text(f"Materialized ({HOURS})")).to_be_visible()


def _launch(page: Page, window: str, matches: int) -> str:
    """Selects the matching partitions on the page of the group; returns the id of the backfill."""
    page.goto("/locations/kfm/asset-groups/usgs_streamflow/lineage")
    expect(page.get_by_text("validate").first).to_be_visible()
    _picture(page, "group")
    page.get_by_role("button", name="Materialize all").first.click()
    page.get_by_text("Select a partition or create one").click()
    page.get_by_placeholder("Filter partitions").fill(window)
    page.get_by_text(f"Select all ({matches})").click()
    _picture(page, "choose")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Launch backfill").click()
    expect(page.get_by_role("button", name="Launch backfill")).to_have_count(0)
    page.goto("/runs?view=backfills")
    link = page.locator("a[href*='/runs/b/']").first
    return str(link.get_attribute("href")).rpartition("/")[2]


def _assert_it_is_over(page: Page, backfill: str) -> None:
    """The backfill fails because of open windows, and `publish` is done for the closed ones."""
    page.goto(f"/runs/b/{backfill}")
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    targeted_running_done_failed = rf"publish\s+100% completed\s+{HOURS}\s+0\s+{CLOSED}\s+{HOURS - CLOSED}"
    expect(page.locator("body")).to_have_text(re.compile(targeted_running_done_failed), use_inner_text=True)
    _picture(page, "over")


def _assert_the_run_gives_the_reason(page: Page, backfill: str) -> None:
    page.goto(f"/runs/b/{backfill}?tab=runs")
    page.get_by_role("link", name="View", exact=True).first.click()
    expect(page.get_by_text(f"{HOURS - CLOSED} keys were not published").first).to_be_visible()
    expect(page.get_by_text("is not closed: the watermark of usgs/streamflow").first).to_be_visible()
    _picture(page, "refused")


def _picture(page: Page, name: str) -> None:
    if folder := os.environ.get("KFM_SCREENSHOTS"):
        page.wait_for_timeout(1500)  # until animations have ended
        page.screenshot(path=Path(folder) / f"backfill-{name}.png")

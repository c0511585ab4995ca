"""What a key is compared with: earlier transform versions, changed descriptions, another policy, and its area."""

from dataclasses import replace
from datetime import timedelta

import pytest

from kfm_pipelines.care.review import decide as exempt
from kfm_pipelines.state.revisions import neighbour_rows
from kfm_pipelines_tests.fixtures.care.register import KEY, sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import applied, publish_due
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.tables import rows, stored


@pytest.mark.slow
def test_a_key_is_never_computed_by_another_version_than_its_own(site: Site) -> None:
    site.put(0)
    publish_due(site)
    site.put(1)
    site.drain()
    site = declared_anew(site, "usgs-streamflow", lambda d: d["key"].update(transform_version="v2-0-0"))
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    before = site.tree()

    publish_due(site)

    assert site.tree() == before
    assert applied(site.services) == {site.key(0): 1}
    [letter] = site.fetch("SELECT key, error, reason FROM kfm.dead_letters")
    assert (letter["key"], letter["error"]) == (site.key(1), "KeyOutdated")
    assert "is declared with version v2-0-0 now" in letter["reason"]


@pytest.mark.slow
def test_a_changed_description_of_a_column_is_no_drift(site: Site) -> None:
    site = declared_anew(site, "usgs-streamflow", lambda d: d["quality"].update(stable=True))
    for hour in range(3):
        site.put(hour)
    publish_due(site)
    rows = neighbour_rows(site.services.database, [site.key(1), site.key(2)], 1)
    assert rows == {site.key(1): (68, 68), site.key(2): (68,)}

    site = declared_anew(
        site, "usgs-streamflow", lambda d: d["table"]["columns"][0].update(description="Number of the gauge")
    )
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    publish_due(site)
    assert applied(site.services) == {site.key(hour): 2 for hour in range(3)}
    assert site.fetch("SELECT rule FROM kfm.qa_findings WHERE rule = 'checksum-drift'") == []


@pytest.mark.slow
def test_unmasked_rows_of_an_ended_exemption_do_not_block_the_masked_release(site: Site) -> None:
    site = declared_anew(
        site, "heritage-sites", lambda d: d["quality"].update(rows={"previous": {"error_percent": 1.0}})
    )
    register = with_reviewer(site)
    until = site.services.today() + timedelta(days=1)
    given = exempt.grant_exemption(site.services, "heritage/sites", "", until, register.private_key, "a court wants it")
    register.publish(sites(register.dataset))
    [unmasked] = site.fetch("SELECT content_hash FROM kfm.revisions")

    exempt.end_exemption(site.services, given.id, register.private_key, "over")
    publish_due(site)
    register.approve()
    publish_due(site)
    assert applied(site.services) == {KEY: 2}
    assert not list(site.data.glob(f"objects/sha256/*/{unmasked['content_hash']}.parquet"))


def gauges(*longitudes: float) -> bytes:
    return stored(rows(len(longitudes), longitude=list(longitudes))).data


@pytest.mark.slow
def test_gauges_of_maryland_are_not_published_as_those_of_kansas(site: Site) -> None:
    site.put(0, gauges(-76.7, -77.1, -77.0))
    publish_due(site)

    assert applied(site.services) == {}
    [letter] = site.fetch("SELECT triage, reason FROM kfm.dead_letters")
    assert letter["triage"] == "quality"
    assert letter["reason"].endswith(
        "qa gate: longitude, latitude: expected places in kansas_statewide, found 3 of 3 rows outside"
    )


@pytest.mark.slow
def test_rows_that_are_left_out_are_findings(site: Site) -> None:
    site = declared_anew(site, "usgs-streamflow", lambda d: d.update(outside_aoi="clip"))
    site.put(0, gauges(-97.6, -97.7, -76.7), name="one.parquet")
    site.put(0, gauges(-97.6), name="two.parquet")
    publish_due(site)

    assert applied(site.services) == {site.key(0): 1}
    assert site.fetch("SELECT rows FROM kfm.revisions") == [{"rows": 2}]
    query = "SELECT rule, severity, measured FROM kfm.qa_findings WHERE severity = 'info' ORDER BY rule"
    assert [tuple(row.values()) for row in site.fetch(query)] == [
        ("duplicate-rows", "info", "1 equal to another in all columns, left out"),
        ("outside-aoi", "info", "1 outside, left out"),
    ]


@pytest.mark.slow
def test_masked_places_are_judged_before_they_are_masked(site: Site) -> None:
    """Centres of cells lie elsewhere, so the true places are compared with the area, without a sample of them."""
    register = with_reviewer(site)
    places = sites(register.dataset).column("latitude").to_pylist()
    outside = sites(register.dataset, latitude=[40.03, *places[1:]])  # within the declared extent
    register.put(outside)
    publish_due(site)
    assert register.reason().endswith(
        "before masking: longitude, latitude: expected places in kansas_statewide, found 1 of 60 rows outside"
    )

    site = declared_anew(site, "heritage-sites", lambda d: d.update(outside_aoi="warn"))
    register = replace(register, site=site)
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    publish_due(site)
    assert register.waiting().key == KEY
    found = site.fetch("SELECT severity, measured, sample FROM kfm.qa_findings WHERE rule = 'outside-aoi' ORDER BY txn")
    assert [tuple(row.values()) for row in found] == [
        ("error", "1 of 60 rows outside", ""),
        ("warn", "1 of 60 rows outside", ""),
    ]

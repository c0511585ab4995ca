"""What a key is compared with: earlier transform versions, changed descriptions, and another policy."""

from datetime import timedelta

import pytest

from kfm_pipelines.care.review import decide as exempt
from kfm_pipelines.state.revisions import neighbour_rows
from kfm_pipelines_tests.fixtures.care.register import KEY, sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import applied, publish_due
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.sites.site import Site


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

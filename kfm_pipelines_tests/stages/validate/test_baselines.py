"""What came before a key: other versions of its transform, other texts about its columns, another policy."""

from datetime import timedelta

import pytest

from kfm_pipelines.care import exempt
from kfm_pipelines.state.revisions import neighbour_rows
from kfm_pipelines_tests.fixtures.care.register import sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.sites.site import Site


@pytest.mark.slow
def test_a_key_is_never_made_by_another_version_than_it_says(site: Site) -> None:
    site.put(0)
    assert site.work()["published"] == 1
    site.put(1)
    site.drain()
    site = declared_anew(site, "usgs-streamflow", lambda d: d["key"].update(transform_version="v2-0-0"))
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    before = site.tree()

    assert site.work() == {"keys": 2, "published": 0, "skipped": 1, "failed": 1}

    assert site.tree() == before
    [letter] = site.fetch("SELECT key, error, reason FROM kfm.dead_letters")
    assert (letter["key"], letter["error"]) == (site.key(1), "KeyOutdated")
    assert "is declared with version v2-0-0 now" in letter["reason"]


@pytest.mark.slow
def test_better_words_about_a_column_are_no_drift(site: Site) -> None:
    site = declared_anew(site, "usgs-streamflow", lambda d: d["quality"].update(stable=True))
    for hour in range(3):
        site.put(hour)
    assert site.work()["published"] == 3
    assert sorted(neighbour_rows(site.services.database, site.key(1), 1)) == [68, 68]
    assert neighbour_rows(site.services.database, site.key(2), 1) == [68]

    site = declared_anew(
        site, "usgs-streamflow", lambda d: d["table"]["columns"][0].update(description="Number of the gauge")
    )
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    assert site.work()["published"] == 3
    assert site.fetch("SELECT rule FROM kfm.qa_findings WHERE rule = 'checksum-drift'") == []


@pytest.mark.slow
def test_what_an_exemption_let_out_does_not_stop_what_replaces_it(site: Site) -> None:
    site = declared_anew(
        site, "heritage-sites", lambda d: d["quality"].update(rows={"previous": {"error_percent": 1.0}})
    )
    register = with_reviewer(site)
    until = site.services.today() + timedelta(days=1)
    given = exempt.grant_exemption(site.services, "heritage/sites", "", until, register.private_key, "a court wants it")
    register.publish(sites(register.dataset))
    [unmasked] = site.fetch("SELECT content_hash FROM kfm.revisions")

    exempt.end_exemption(site.services, given.id, register.private_key, "over")
    site.work()
    register.approve()
    assert site.work()["published"] == 1
    assert not list(site.data.glob(f"objects/sha256/*/{unmasked['content_hash']}.parquet"))

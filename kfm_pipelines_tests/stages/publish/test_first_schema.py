"""The schema of a dataset is fixed by whichever of its keys is published first."""

import pytest

from kfm_pipelines.stages.publish import release
from kfm_pipelines_tests.fixtures.runs.batches import applied, publish, publish_due, stage
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.sites.site import Site

NAME = "usgs/streamflow"


def with_other_unit(site: Site) -> Site:
    return declared_anew(site, "usgs-streamflow", lambda d: d["table"]["columns"][6].update(unit="m"))


@pytest.mark.slow
def test_a_key_judged_before_another_schema_was_published_is_refused(site: Site) -> None:
    site.put(0)
    site.put(1)
    site.drain()
    first = stage(site.services, site.services.datasets[NAME], [site.key(0)], "first")
    changed = with_other_unit(site)
    second = stage(changed.services, changed.services.datasets[NAME], [site.key(1)], "second")

    first.publish([site.key(0)])
    second.publish([site.key(1)])

    assert applied(site.services) == {site.key(0): 1}
    [letter] = site.fetch("SELECT key, triage, reason FROM kfm.dead_letters")
    assert (letter["key"], letter["triage"]) == (site.key(1), "schema")
    assert letter["reason"].endswith(
        "another schema was published first, and needs approval to change: gage_height_ft: unit ft is now m"
    )


@pytest.mark.slow
def test_an_interrupted_first_publication_fixes_the_schema_it_was_judged_with(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Item is swapped, and the declaration changes before the publication is completed."""
    site.put(0)
    site.drain()

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(release, "_write_histories", stopped)
        with pytest.raises(KeyboardInterrupt):
            publish(site.services, site.services.datasets[NAME], [site.key(0)], "first")
    assert site.fetch("SELECT version FROM kfm.schema_versions") == []
    changed = with_other_unit(site)
    site.services.database.execute("UPDATE kfm.keys SET lease_until = clock_timestamp() - interval '1 s'")

    publish(changed.services, changed.services.datasets[NAME], [site.key(0)], "second")

    [version] = site.fetch("SELECT columns FROM kfm.schema_versions")
    assert version["columns"]["gage_height_ft"]["unit"] == "ft"
    site.put(1)
    publish_due(changed)
    assert applied(site.services) == {site.key(0): 1}

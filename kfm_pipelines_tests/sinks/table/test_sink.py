"""A table shows what is published, as it is published."""

from kfm_pipelines.sinks.table.check import differences, totals
from kfm_pipelines.sinks.table.warehouse import load_table
from kfm_pipelines_tests.fixtures.sites.site import Site


def test_a_run_writes_its_keys_into_the_table(site: Site) -> None:
    for hour in range(3):
        site.put(hour)
    assert site.work()["published"] == 3
    keys = [site.key(hour) for hour in range(3)]
    assert differences(site.services, site.dataset, keys) == {}
    assert site.fetch("SELECT * FROM kfm.outbox") == []
    found = totals(site.services, site.dataset)
    assert found["rows"] == 3 * 68
    table = load_table(site.services, site.dataset)
    assert table is not None
    assert list(table.refs()) == ["main", f"{site.services.today():%Y-%m-%d}"]

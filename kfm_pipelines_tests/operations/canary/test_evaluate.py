"""A candidate is compared with what is published; its faults are recorded, and nobody else's."""

import stat
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import PromotionRefused
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.canary.evaluate import CanaryRun
from kfm_pipelines.operations.canary.promote import promote, read_candidate_status
from kfm_pipelines.operations.canary.tables import KeyComparison
from kfm_pipelines.operations.retention.purge import purge
from kfm_pipelines.stages.compute.transforms import TRANSFORMS
from kfm_pipelines.stages.compute.transforms.metric_discharge import metric_discharge
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.runs.candidates import CANARY, candidate_file, declaration_path, try_candidate
from kfm_pipelines_tests.fixtures.runs.replay import published_hours, read_again
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

PUBLISHED = ("catalog", "objects", "processed")
SECRET_VALUE = "38.79812345"


@pytest.fixture(scope="module")
def shared(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One published hour for all tests of the module."""
    root = tmp_path_factory.mktemp("compared")
    with opened_site(root / "site", stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        published_hours(opened, 1)
        yield opened


@pytest.fixture
def one_hour(shared: Site) -> Iterator[Site]:
    """The shared site. Declarations and comparisons are as before after each test."""
    files = {path: path.read_text() for path in (candidate_file(shared), declaration_path(shared))}
    yield shared
    for path, text in files.items():
        path.write_text(text)
    read_again(shared)
    shared.services.database.execute("DELETE FROM kfm.comparisons")
    shared.services.store.remove("work/restricted/shadow")


def tried(site: Site, dataset: Dataset, *hours: int, run_id: str = "a run") -> list[KeyComparison]:
    run = CanaryRun(site.services, dataset, run_id)
    found = run.compare([site.key(hour) for hour in hours])
    assert (run.skipped, run.failed) == ({}, {})
    return found


def recorded(site: Site) -> list[dict[str, Any]]:
    return site.fetch("SELECT key, good, report, run_id FROM kfm.comparisons ORDER BY at, key")


def raises(_: pa.Table) -> pa.Table:
    raise ValueError(SECRET_VALUE)


def drops_a_row(table: pa.Table) -> pa.Table:
    return metric_discharge(table).slice(1)


def changes_the_unit(table: pa.Table) -> pa.Table:
    place = table.column_names.index("discharge_cfs")
    metric = metric_discharge(table)
    return metric.set_column(place, "discharge_cfs", metric["discharge_m3s"])


def forgets_its_column(table: pa.Table) -> pa.Table:
    return table


def renames_the_sites(table: pa.Table) -> pa.Table:
    """As many names as before, each another one."""
    place = table.column_names.index("site_name")
    names = pc.binary_join_element_wise(table["site_name"], "!", "")
    return metric_discharge(table).set_column(place, "site_name", names)


def gives_nothing(_: pa.Table) -> pa.Table:
    return None


BAD: dict[Callable[[pa.Table], pa.Table], str] = {
    gives_nothing: "the candidate failed with AttributeError",
    raises: "the transform metric_discharge failed with ValueError",
    drops_a_row: "67 rows, not 68: 1.47 % apart",
    changes_the_unit: "discharge_cfs: stddev differs by 97.2 %",
    renames_the_sites: "100 % of the rows differ: 0 added, 0 removed, 68 changed in site_name",
    forgets_its_column: "schema gate: discharge_m3s: expected a column of type double, found no such column",
}


@pytest.mark.slow
def test_a_bad_candidate_is_never_promoted_and_changes_nothing_published(
    one_hour: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = one_hour
    published = site.tree(*PUBLISHED)
    dataset = try_candidate(site, {**CANARY, "keys": 1})

    for transform, fault in BAD.items():
        monkeypatch.setitem(TRANSFORMS, "metric_discharge", transform)
        change(candidate_file(site), title=transform.__name__)  # another candidate, so it is compared anew
        [one] = tried(site, dataset, 0)
        assert not one.good
        assert fault in one.report["faults"]
        percents = [difference["percent"] for difference in one.report.get("statistics", [])]
        assert percents == [float(f"{percent:.3g}") for percent in percents]
        assert SECRET_VALUE not in str(one.report) + caplog.text
        with pytest.raises(PromotionRefused, match="1 of 1 keys are not good") as refusal:
            promote(site.services, "usgs/streamflow", actor="ana", reason="never mind")
        assert one.report["faults"][0] in str(refusal.value)

    assert site.tree(*PUBLISHED) == published
    assert site.fetch("SELECT * FROM kfm.promotions") == []
    assert candidate_file(site).exists()


def test_a_key_is_compared_once_and_its_shadow_is_restricted(one_hour: Site) -> None:
    site = one_hour
    dataset = try_candidate(site)
    published = site.tree(*PUBLISHED)
    [first] = tried(site, dataset, 0, run_id="one")
    [second] = tried(site, dataset, 0, run_id="two")
    assert (first, second.run_id) == (second, "one")
    assert len(recorded(site)) == 1
    assert site.tree(*PUBLISHED) == published

    shadow = site.data / f"work/restricted/shadow/usgs-streamflow/{site.key()}/v1-1-0.parquet"
    assert "discharge_m3s" in pq.read_schema(shadow).names
    assert stat.S_IMODE(shadow.stat().st_mode) == 0o600
    folders = [shadow.parent, *shadow.parents[1:5]]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}

    with pytest.raises(PromotionRefused, match="1 keys were compared with this candidate; 2 are needed"):
        promote(site.services, "usgs/streamflow", actor="ana", reason="too early")

    assert purge(site.services).shadows == 0
    shadow.with_name("v0-9-0.parquet").write_bytes(b"of an earlier candidate")
    assert purge(site.services).shadows == 1
    assert list(shadow.parent.iterdir()) == [shadow]
    change(candidate_file(site), title="Another candidate")
    assert purge(site.services).shadows == 1
    assert not shadow.parent.exists()
    assert read_candidate_status(site.services, dataset).comparisons == []


def test_only_the_published_revision_is_compared(site: Site) -> None:
    published_hours(site, 1)
    dataset = try_candidate(site)
    tried(site, dataset, 0)
    site.put(0, name="more.parquet")
    site.drain()
    run = CanaryRun(site.services, dataset, "a run")
    assert run.compare([site.key(0)])[0].good  # as before: the revision it is about is still the published one
    site.services.database.execute("DELETE FROM kfm.comparisons")
    assert run.compare([site.key(0), site.key(7)]) == []
    assert run.failed == {}
    assert run.skipped == {
        site.key(0): "its objects are not those of revision 1; newer events wait",
        site.key(7): "nothing of it is published",
    }


def test_damage_in_the_store_is_no_fault_of_the_candidate(site: Site) -> None:
    published_hours(site, 1)
    dataset = try_candidate(site)
    [content] = [site.data / path for path in site.tree("objects") if path.endswith(".parquet")]
    content.chmod(0o600)
    content.write_bytes(b"damaged")
    run = CanaryRun(site.services, dataset, "a run")
    assert run.compare([site.key(0)]) == []
    assert run.failed == {site.key(0): "the published bytes are not what was published"}
    content.unlink()
    content.mkdir()
    assert run.compare([site.key(0)]) == []
    assert "is not in the store" in run.failed[site.key(0)]
    assert recorded(site) == []


def works(table: pa.Table) -> pa.Table:
    """In the same file as one that does not, so that it is the same candidate."""
    return metric_discharge(table)


def finds_no_memory(_: pa.Table) -> pa.Table:
    raise MemoryError


def test_a_key_stays_uncompared_without_memory_disk_or_policy(one_hour: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site = one_hour
    dataset = try_candidate(site)

    def failed() -> str:
        run = CanaryRun(site.services, dataset, "a run")
        assert run.compare([site.key()]) == []
        assert recorded(site) == []
        return run.failed[site.key()]

    with monkeypatch.context() as patch:
        patch.setitem(TRANSFORMS, "metric_discharge", finds_no_memory)
        assert failed() == "MemoryError while comparing"
    shadow = site.data / f"work/restricted/shadow/usgs-streamflow/{site.key()}/v1-1-0.parquet"
    shadow.mkdir(parents=True)  # it can be neither removed nor written
    assert failed() == "IsADirectoryError while comparing"
    shadow.rmdir()

    policies = site.services.settings.resources / "policies"
    late = yaml.safe_load((policies / "not-sensitive.yaml").read_text())
    late |= {"policy": "late", "reviewed_on": date(2020, 1, 1), "review_every_days": 1}
    (policies / "late.yaml").write_text(yaml.safe_dump(late))
    text = candidate_file(site).read_text()
    change(candidate_file(site), policy="late")
    assert failed().endswith("was due for review by 2020-01-02; nothing is published under it")

    candidate_file(site).write_text(text)
    (policies / "late.yaml").unlink()
    assert tried(site, dataset, 0)[0].good


def test_a_bad_comparison_is_repeated(one_hour: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site = one_hour
    dataset = try_candidate(site)
    monkeypatch.setitem(TRANSFORMS, "metric_discharge", raises)
    tried(site, dataset, 0, run_id="one")
    tried(site, dataset, 0, run_id="two")
    assert [(one["good"], one["run_id"]) for one in recorded(site)] == [(False, "two")]
    monkeypatch.setitem(TRANSFORMS, "metric_discharge", works)
    tried(site, dataset, 0, run_id="three")
    tried(site, dataset, 0, run_id="four")
    assert [(one["good"], one["run_id"], one["report"]["faults"]) for one in recorded(site)] == [(True, "three", [])]
    assert [one.good for one in read_candidate_status(site.services, dataset).comparisons] == [True]

"""The nightly scan finds and names whatever was changed in the store, and changes nothing itself."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kfm_pipelines.declarations.quality import Range
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.scans.nightly import nightly_scan
from kfm_pipelines.operations.scans.result import ScanFinding, ScanKind, ScanResult
from kfm_pipelines.operations.scans.tables import scan_lock
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.services import Services
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.state.verdicts import latest_findings
from kfm_pipelines.state.wal import Step
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.runs.keys import advance, begin
from kfm_pipelines_tests.fixtures.scans import last_scan
from kfm_pipelines_tests.fixtures.sites.published_site import (
    DROUGHT,
    HOURS,
    STREAMFLOW,
    flipped,
    paths_of,
    replaced,
    revision_of,
)
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("scan") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        for hour in range(HOURS):
            opened.put(hour)
        work_in_batches(opened)
        yield opened


def scanned(site: Site, dataset: str = STREAMFLOW, run_id: str = "a-run", **how: Any) -> ScanResult:
    return nightly_scan(site.services, site.services.datasets[dataset], run_id, **how)


def subjects_of(found: tuple[ScanFinding, ...]) -> list[tuple[str | None, str, str]]:
    return [(one.key, one.finding.rule, one.finding.subject) for one in found]


def stored_path(site: Site, key: str, part: str) -> str:
    return paths_of(site, key)[part].relative_to(site.data).as_posix()


@pytest.mark.slow
def test_an_unchanged_publication_has_no_findings(site: Site) -> None:
    before = site.tree()
    found = scanned(site, full=True)
    assert (found.keys, found.keys_left, found.findings) == (HOURS, 0, ())
    assert site.tree() == before


def test_a_flipped_bit_is_found_and_named(site: Site) -> None:
    key = site.key(1)
    path = paths_of(site, key)["content"]
    with replaced(path, flipped(path)):
        found = scanned(site, full=True, run_id="flipped")
    assert subjects_of(found.findings) == [
        (key, "published-digest", stored_path(site, key, "content")),
        (key, "published-item-agrees", "asset data, file:checksum"),
    ]
    assert (found.keys, found.errors, found.warnings) == (HOURS, 2, 0)
    recorded = latest_findings(site.services.database, run_id="flipped")
    assert {(one.key, one.gate, one.severity, one.txn) for one in recorded} == {(key, "published", "error", None)}
    assert len(recorded) == 2


def test_truncated_bytes_are_found(site: Site) -> None:
    path = paths_of(site, site.key())["content"]
    with replaced(path, path.read_bytes()[:-1]):
        found = scanned(site, full=True)
    assert "asset data, file:size" in [subject for _, _, subject in subjects_of(found.findings)]


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        ("content", "published-digest"),
        ("processed", "published-digest"),
        ("item", "published-item-present"),
    ],
)
def test_a_missing_file_is_found_and_named(site: Site, part: str, rule: str) -> None:
    key = site.key(2)
    with replaced(paths_of(site, key)[part], None):
        found = scanned(site, full=True)
    assert subjects_of(found.findings) == [(key, rule, stored_path(site, key, part))]
    assert found.findings[0].finding.measured == "nothing"


def test_a_changed_copy_is_found_and_named(site: Site) -> None:
    key = site.key()
    with replaced(paths_of(site, key)["processed"], b"something else"):
        found = scanned(site, full=True)
    assert subjects_of(found.findings) == [(key, "published-digest", stored_path(site, key, "processed"))]


def test_an_item_that_disagrees_with_its_data_is_found(site: Site) -> None:
    key = site.key()
    path = paths_of(site, key)["item"]
    item = json.loads(path.read_bytes())
    item["assets"]["data"]["file:size"] += 1
    item["assets"]["data"]["href"] = "https://elsewhere.example/data.parquet"
    del item["assets"]["provenance"]
    with replaced(path, json.dumps(item).encode()):
        found = scanned(site, full=True)
    assert subjects_of(found.findings) == [
        (key, "published-digest", stored_path(site, key, "item")),
        (key, "published-item-agrees", "asset data, file:size"),
        (key, "published-item-agrees", "asset provenance"),
        (key, "published-item-agrees", "asset data, href"),
    ]


@pytest.mark.parametrize("rubbish", [b"", b"no json", b"[]", b'{"assets": 3}', b'{"assets": {"data": []}}'])
def test_a_malformed_item_is_a_finding(site: Site, rubbish: bytes) -> None:
    with replaced(paths_of(site, site.key())["item"], rubbish):
        found = scanned(site, full=True)
    assert {rule for _, rule, _ in subjects_of(found.findings)} == {"published-digest", "published-item-agrees"}


def test_the_gates_judge_the_published_table_again(site: Site) -> None:
    """The bytes are unchanged; the declaration has become stricter."""
    dataset = site.dataset
    columns = [
        column.model_copy(update={"nullable": False}) if column.name == "discharge_cfs" else column
        for column in dataset.table.columns
    ]
    stricter = dataset.model_copy(update={"table": dataset.table.model_copy(update={"columns": columns})})
    found = nightly_scan(site.services, stricter, "stricter", full=True)
    assert {(one.gate, one.finding.rule) for one in found.findings} == {("schema", "no-nulls")}

    other = stricter.model_copy(update={"key": dataset.key.model_copy(update={"transform_version": "v2-0-0"})})
    assert nightly_scan(site.services, other, "other", full=True).findings == ()


def test_a_gate_that_cannot_judge_is_a_finding(site: Site) -> None:
    """A threshold for a text column, which no valid declaration has."""
    quality = site.dataset.quality.model_copy(update={"ranges": [Range(column="qualifier", min=0)]})
    found = nightly_scan(site.services, site.dataset.model_copy(update={"quality": quality}), "unfit", full=True)
    assert {(one.gate, one.finding.rule) for one in found.findings} == {("published", "published-judged")}
    assert found.keys == found.errors >= HOURS


def scanned_keys(site: Site, **how: Any) -> list[str]:
    """Scan, and return the scanned keys."""
    [before] = site.fetch("SELECT clock_timestamp() AS at")
    scanned(site, **how)
    rows = site.fetch(f"SELECT key FROM kfm.scanned WHERE at > '{before['at']}' ORDER BY at")
    return [row["key"] for row in rows]


@pytest.mark.slow
def test_new_keys_are_scanned_first(site: Site) -> None:
    scanned(site)
    site.put(7)
    work_in_batches(site)
    found = scanned(site, run_id="new", limit=1)
    assert (found.keys, found.keys_left, found.errors) == (1, 0, 0)
    assert last_scan(site, "nightly", STREAMFLOW) == {
        "run_id": "new", "keys": 1, "errors": 0, "warnings": 0, "detail": {"left": 0, "left_out": 0, "full": False}
    }  # fmt: skip
    assert site.key(7) not in scanned_keys(site, limit=1)

    site.put(7, streamflow_object(START + timedelta(hours=7), seed=5)[1])
    work_in_batches(site)
    assert revision_of(site, site.key(7)).revision == 2
    assert scanned_keys(site, limit=1) == [site.key(7)]


def test_every_key_is_scanned_again_in_rotation(site: Site) -> None:
    """Bytes can rot without a publication; with one key a night, each is scanned after as many nights as keys."""
    total = scanned(site, full=True).keys
    nights = [scanned_keys(site, limit=1) for _ in range(total)]
    assert sorted(key for night in nights for key in night) == sorted(scanned_keys(site))
    path = paths_of(site, site.key(1))["content"]
    with replaced(path, flipped(path)):
        assert [scanned(site, limit=1).errors for _ in range(total)].count(0) < total
    scanned(site)


def test_an_unchanged_error_counts_every_night_and_is_recorded_once(site: Site) -> None:
    key = site.key()
    scanned(site)
    with replaced(paths_of(site, key)["processed"], None):
        nights = [scanned(site, run_id=f"night-{night}") for night in (2, 3)]
        assert [night.errors for night in nights] == [1, 1]
        with replaced(paths_of(site, key)["item"], None):
            assert scanned(site, run_id="night-4", limit=1).errors == 2
    assert (scanned_keys(site, limit=1), scanned(site, limit=1).errors) == ([key], 0)
    with replaced(paths_of(site, key)["processed"], None):
        scanned(site, run_id="night-5")
    scanned(site)
    written = site.fetch(
        "SELECT run_id, count(*) FROM kfm.qa_findings WHERE run_id LIKE 'night%' GROUP BY 1 ORDER BY 1"
    )
    assert written == [
        {"run_id": "night-2", "count": 1},
        {"run_id": "night-4", "count": 2},
        {"run_id": "night-5", "count": 1},
    ]


def test_a_bounded_scan_reports_how_many_keys_are_left(site: Site) -> None:
    site.services.database.execute("DELETE FROM kfm.scanned")
    total = len(site.fetch("SELECT FROM kfm.keys WHERE dataset = 'usgs/streamflow'"))
    assert total >= HOURS
    first = scanned(site, limit=2)
    assert (first.keys, first.keys_left) == (2, total - 2)
    assert (scanned(site, limit=total - 2).keys_left, len(site.fetch("SELECT FROM kfm.scanned"))) == (0, total)

    [before] = site.fetch("SELECT max(at) AS at FROM kfm.scanned")
    for limit in (2, total - 2):
        scanned(site, full=True, limit=limit)
    rows = site.fetch("SELECT at FROM kfm.scanned WHERE key LIKE 'usgs%'")
    assert [row["at"] > before["at"] for row in rows] == [True] * total


def test_an_interrupted_scan_continues_where_it_ended(site: Site) -> None:
    site.services.database.execute("DELETE FROM kfm.scanned")
    scans_before = len(site.fetch("SELECT FROM kfm.scans"))
    total = scanned(site, full=True).keys
    site.services.database.execute("DELETE FROM kfm.scanned")

    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    key = site.fetch("SELECT key FROM kfm.revisions WHERE key LIKE 'usgs%' ORDER BY applied_at LIMIT 1")[0]["key"]
    with replaced(paths_of(site, key)["processed"], None):
        with pytest.raises(KeyboardInterrupt):
            scanned(site, run_id="cut", on_progress=interrupt)
        assert [one.key for one in latest_findings(site.services.database, run_id="cut")] == [key]
        assert len(site.fetch("SELECT FROM kfm.scans")) == scans_before + 1
        [right] = [row["key"] for row in site.fetch("SELECT key FROM kfm.scanned WHERE errors = 0")]
        # The remaining keys, and the wrong one again.
        again = scanned_keys(site, limit=total - 1)
        assert (len(again), right in again) == (total - 1, False)
    scanned(site)


def test_two_scans_of_a_dataset_do_not_run_at_once(site: Site) -> None:
    with scan_lock(site.services.database, ScanKind.NIGHTLY, STREAMFLOW) as started_at:
        assert started_at is not None
        second = scanned(site, full=True)
        assert (second.keys, second.note) == (0, "another nightly scan of usgs/streamflow is running")
        assert scanned(site, DROUGHT, full=True).note == ""
    assert scanned(site, full=True).note == ""


class PublishingStore:
    """A store in which a key is published again when its Item is first read."""

    def __init__(self, site: Site, key: str) -> None:
        self._site, self._key, self._store = site, key, site.services.store
        self.published = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, path: str) -> bytes:
        if self._key in path and not self.published:
            self.published = True
            self._site.put(0, streamflow_object(START, seed=5)[1])
            work_in_batches(self._site)
        return self._store.read(path)


def test_a_key_published_during_its_scan_has_no_findings(site: Site) -> None:
    key = site.key()
    before = revision_of(site, key).revision
    store = PublishingStore(site, key)
    services = Services(site.services.settings)
    services.__dict__["store"] = store
    try:
        found = nightly_scan(services, site.dataset, "meanwhile", full=True)
    finally:
        services.close()
    assert store.published
    assert revision_of(site, key).revision == before + 1
    assert found.findings == ()
    rows = site.fetch(f"SELECT revision FROM kfm.scanned WHERE key = '{key}'")
    assert rows == [{"revision": before + 1}]


def test_a_key_with_an_unfinished_publication_is_postponed(site: Site) -> None:
    """Readers may see its Item already; the run that takes over the key completes the rest."""
    key, database = site.key(1), site.services.database
    total = scanned(site, full=True).keys
    claim = Claims(database, "one that died", 60).take(key)
    begin(database, claim)
    for step in (Step.COMPUTE, Step.MASK, Step.VALIDATE, Step.STAGE_ATOMIC, Step.PUBLISH):
        advance(database, claim, step)
    with replaced(paths_of(site, key)["item"], b"{}"):
        found = scanned(site, full=True)
    assert (found.keys, found.keys_left, found.findings) == (total - 1, 1, ())

"""Extents are recomputed from the Items: a collection that differs is reported and rewritten."""

import json
from typing import Any

import pytest

from kfm_pipelines.operations.scans.extents import recompute_extent
from kfm_pipelines.operations.scans.result import ScanKind, ScanResult
from kfm_pipelines.operations.scans.tables import scan_lock
from kfm_pipelines.state.verdicts import latest_findings
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.scans import last_scan
from kfm_pipelines_tests.fixtures.sites.published_site import STREAMFLOW, paths_of, replaced
from kfm_pipelines_tests.fixtures.sites.site import Site


def recomputed(site: Site, run_id: str = "a-run") -> ScanResult:
    return recompute_extent(site.services, site.dataset, run_id)


def subjects_of(scanned: ScanResult) -> list[tuple[str, str]]:
    return [(one.finding.subject, one.finding.severity) for one in scanned.findings]


def spoil(site: Site, **changes: Any) -> bytes:
    """Change the collection by hand; returns its previous bytes."""
    path = paths_of(site, site.key())["collection"]
    before = path.read_bytes()
    path.write_bytes(json.dumps(json.loads(before) | changes).encode())
    return before


def count_reads(monkeypatch: pytest.MonkeyPatch, part: str) -> list[str]:
    """Returns a list that collects every path read from now on that contains `part`."""
    paths: list[str] = []
    read = FileStore.read

    def counting(store: FileStore, path: str) -> bytes:
        paths.extend([path] if part in path else [])
        return read(store, path)

    monkeypatch.setattr(FileStore, "read", counting)
    return paths


@pytest.mark.slow
def test_extents_are_compared_with_the_items(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recomputed(site).keys == 0
    for hour in range(2):
        site.put(hour)
    site.work()
    path = paths_of(site, site.key())["collection"]
    right = path.read_bytes()

    clean = recomputed(site)
    assert (clean.keys, clean.findings) == (2, ())
    assert path.read_bytes() == right

    true = json.loads(right)["extent"]
    for wrong in (
        {"spatial": {"bbox": [[0.0, 0.0, 1.0, 1.0]]}, "temporal": true["temporal"]},
        {"spatial": true["spatial"], "temporal": {"interval": [[None, None]]}},
        {},
    ):
        spoil(site, extent=wrong)
        assert subjects_of(recomputed(site, "spoilt")) == [("collection", "warn")]
        assert path.read_bytes() == right
        assert recomputed(site).findings == ()
    path.unlink()
    assert subjects_of(recomputed(site)) == [("collection", "warn")]
    assert path.read_bytes() == right

    recorded = latest_findings(site.services.database, run_id="spoilt")
    assert {(one.key, one.gate, one.rule, one.severity) for one in recorded} == {
        (None, "extents", "extent-drift", "warn")
    }
    assert len(recorded) == 3
    last = last_scan(site, "extents", STREAMFLOW)
    assert (last["keys"], last["errors"], last["warnings"]) == (2, 0, 1)

    # An Item is gone: collection and revisions still have its hour.
    with replaced(paths_of(site, site.key(1))["item"], None):
        lost = recomputed(site)
        assert (lost.keys, subjects_of(lost)) == (1, [("collection", "warn"), ("database", "warn")])
        assert path.read_bytes() == right
    assert recomputed(site).findings == ()

    # A malformed Item is an error, and the others are still compared.
    item = paths_of(site, site.key(1))["item"]
    document = json.loads(item.read_bytes())
    without_zone = {**document["properties"], "start_datetime": "2025-12-04T00:00:00"}
    oddities: list[Any] = [[], 3, {}, {**document, "bbox": 3}, {**document, "bbox": {}}]
    for odd in (*oddities, {**document, "properties": without_zone}):
        with replaced(item, json.dumps(odd).encode()):
            found = recomputed(site, "odd")
        [first, *others] = found.findings
        assert (first.finding.rule, first.finding.severity) == ("item-readable", "error")
        assert first.finding.subject == item.relative_to(site.data).as_posix()
        assert {one.finding.rule for one in others} == {"extent-drift"}
    assert len(latest_findings(site.services.database, run_id="odd", severity="error")) == 6
    assert path.read_bytes() == right

    read = count_reads(monkeypatch, "/items/")
    spoil(site, extent={})
    assert subjects_of(recomputed(site)) == [("collection", "warn")]
    assert len(read) == 2

    with scan_lock(site.services.database, ScanKind.EXTENTS, STREAMFLOW):
        assert recomputed(site).note == "another extents scan of usgs/streamflow is running"

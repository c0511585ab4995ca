"""A dataset that is derived from a masked one knows only what that one has published: places, names and ids of gauges
whose places are masked occur in no byte that is written of either."""

import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import h3
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.leaks.scanner import Canary, Scanner
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import OWN, Site, opened_site
from kfm_pipelines_tests.fixtures.tables import rows

pytestmark = pytest.mark.slow

WEEK = "atlas-drought-streamflow:kansas_statewide:5:2025-W49:v1-0-0"
CELLS = [h3.latlng_to_cell(38.5, -99.5 + number / 2, 5) for number in range(6)]
GAUGES = 6  # in each cell
EXTENT = {"west": -102.1, "south": 36.95, "east": -94.55, "north": 40.05}
MASKING: dict[str, Any] = {
    "reason": "Where these gauges are is nobody's business",
    "authority": "kfm-data-stewards",
    "reviewed_on": date(2026, 6, 1),
    "review_every_days": 3650,
    "sensitivity": "generalised",
    "key_id": "heritage-2026",
    "wording": "Withheld from this release",
    "version": 1,
}
STREAMFLOW_POLICY = {
    "policy": "hidden-gauges",
    "stable_id": ["site_no"],
    "columns": {
        "keep": ["observed_at", "discharge_cfs", "gage_height_ft", "qualifier"],
        "withhold": ["site_no", "site_name"],
    },
    "classes": {"generalised": {"point": {"method": "generalise", "resolution": 5}}},
}
ATLAS_POLICY = {
    "policy": "drought-streamflow",
    "stable_id": ["h3_cell"],
    "columns": {
        "keep": [
            "gauges", "readings", "discharge_mean_cfs", "discharge_min_cfs", "areas_in_drought", "worst_class",
            "drought_index",
        ],
    },
    "classes": {"generalised": {"point": {"method": "suppress"}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The places of streamflow are masked, and so is what the atlas derives from it."""
    root = tmp_path_factory.mktemp("derived-leaks") / "site"
    datasets = (*OWN, "atlas-drought-streamflow")
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template, datasets) as opened:
        resources = opened.services.settings.resources
        labels = yaml.safe_load((resources / "policies" / "drought-streamflow.yaml").read_text())["labels"]
        write_policy(resources, STREAMFLOW_POLICY, [])
        write_policy(resources, ATLAS_POLICY, labels)
        change(resources / "datasets" / "usgs-streamflow.yaml", policy="hidden-gauges", extent=EXTENT)
        vars(opened.services).pop("datasets")  # as a new process would read them
        yield opened


def write_policy(resources: Path, policy: dict[str, Any], labels: list[str]) -> None:
    path = resources / "policies" / f"{policy['policy']}.yaml"
    path.write_text(yaml.safe_dump({**MASKING, **policy, "labels": labels}))


def canaries() -> list[Canary]:
    """Gauges around the middle of each cell."""
    dice, found = random.Random(5), list[Canary]()
    while len(found) < GAUGES * len(CELLS):
        latitude, longitude = h3.cell_to_latlng(CELLS[len(found) % len(CELLS)])
        names = (f"Quillwort Creek near {dice.randrange(16**6):06x}",), (f"{dice.randrange(10**12):012d}",)
        try:
            found.append(Canary(longitude + dice.uniform(-0.03, 0.03), latitude + dice.uniform(-0.03, 0.03), *names))
        except ValueError:
            continue  # its digits could occur by chance
    return found


CANARIES = canaries()


def readings() -> bytes:
    columns = {
        "site_no": [one.ids[0] for one in CANARIES],
        "site_name": [one.texts[0] for one in CANARIES],
        "longitude": [one.longitude for one in CANARIES],
        "latitude": [one.latitude for one in CANARIES],
        "discharge_cfs": [float(number) for number in range(len(CANARIES))],
    }
    sink = io.BytesIO()
    pq.write_table(rows(len(CANARIES), **columns), sink)
    return sink.getvalue()


def leaks(site: Site) -> list[Any]:
    scanner = Scanner(CANARIES)
    hits = scanner.scan_tree(site.root, exclude=[site.data / "work" / "restricted"])
    return hits + scanner.scan_postgres(site.environment["KFM_POSTGRES_URL"])


def test_what_is_derived_is_masked_as_well_and_reveals_nothing(site: Site) -> None:
    site.put(0, readings())
    work_in_batches(site)
    hour = pq.read_table(site.data / f"processed/usgs-streamflow/{site.key(0)}.parquet")
    # Published are multiples of five in a cell; the others have no place, and are in no cell of the atlas.
    assert Counter(hour["cell"].to_pylist()) == {**dict.fromkeys(CELLS, 5), None: len(CELLS) * (GAUGES - 5)}
    week = pq.read_table(site.data / f"processed/atlas-drought-streamflow/{WEEK}.parquet")
    assert week["readings"].to_pylist() == [5] * len(CELLS)
    assert week["longitude"].null_count == week.num_rows
    item = json.loads((site.data / f"catalog/atlas-drought-streamflow/items/{WEEK}.json").read_text())
    assert item["geometry"] is None
    assert leaks(site) == []
    planted = Scanner(CANARIES).scan("input", readings())
    assert {hit.canary for hit in planted} == set(range(len(CANARIES)))

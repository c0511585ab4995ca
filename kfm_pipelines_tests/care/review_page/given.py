"""A register that nobody keeps, what a policy would let out of it, and the page about both."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import h3
import numpy as np
import pyarrow as pa

from kfm_pipelines.care.policies import Policy, load_policy
from kfm_pipelines.care.published import published_table
from kfm_pipelines.care.review_page import sentences, view
from kfm_pipelines.care.review_page.content import PolicyView, ReviewView, Verification
from kfm_pipelines.care.review_page.maps import draw_map
from kfm_pipelines.care.review_page.outlines import load_outline
from kfm_pipelines.datasets import Dataset, load_dataset
from kfm_pipelines.settings import shipped
from kfm_pipelines_tests.declared import without_geometry

RESOURCES = shipped("resources")
CLASSES = ("generalised", "restricted", "withheld")
HOSTILE = f'<script>alert(1)</script>"><img src=x onerror=alert(2)>{{{{ 7*7 }}}}{"W" * 400}\u202egnp.exe\u2066\x07'


@cache
def heritage() -> Dataset:
    return without_geometry(load_dataset(RESOURCES / "datasets" / "heritage-sites.yaml"))


@cache
def policy() -> Policy:
    return load_policy(RESOURCES, "heritage-sites")


def register(sites: int = 200) -> pa.Table:
    """True places, in six clusters. Only the columns that a map needs."""
    random = np.random.default_rng(4)
    centres = np.array([(-97.3, 37.7), (-95.6, 39.0), (-99.3, 38.9), (-100.9, 37.9), (-96.6, 39.2), (-98.2, 39.5)])
    places = centres[random.integers(0, 6, sites)] + random.normal(0, 0.15, (sites, 2))
    return pa.table(
        {
            "site_id": [f"site-{number}" for number in range(sites)],
            "sensitivity": [CLASSES[number] for number in random.choice(3, sites, p=[0.5, 0.4, 0.1])],
            "longitude": places[:, 0],
            "latitude": places[:, 1],
        }
    )


_TYPES = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "date": pa.date32()}


def released(*rows: Mapping[str, object]) -> pa.Table:
    """A published table; what a row does not say is null, and withheld columns have the wording."""
    columns = published_table(heritage(), policy()).columns
    withheld = dict.fromkeys(policy().columns.withhold, policy().wording)
    plain: dict[str, object] = {"sensitivity": "generalised", "records": 1}
    numbered = [{**plain, **withheld, **row, "record": number} for number, row in enumerate(rows, 1)]
    return pa.Table.from_pylist(
        numbered, schema=pa.schema([pa.field(column.name, _TYPES[column.type]) for column in columns])
    )


def in_cell(cell: str, **values: object) -> dict[str, object]:
    latitude, longitude = h3.cell_to_latlng(cell)
    return {"cell": cell, "latitude": latitude, "longitude": longitude, "uncertainty_m": 10_000.0} | values


def cell_near(longitude: float, latitude: float, resolution: int = 4) -> str:
    return str(h3.latlng_to_cell(latitude, longitude, resolution))


def release() -> pa.Table:
    spots = [(-97.3, 37.7), (-95.6, 39.0), (-99.3, 38.9), (-100.9, 37.9), (-96.6, 39.2), (-98.2, 39.5)]
    groups = [
        in_cell(cell_near(*spot, resolution), sensitivity="restricted", records=records)
        for resolution, records in ((4, 5), (3, 15))
        for spot in spots
    ]
    single = [in_cell(cell_near(*spot, 5), period="Archaic", condition="good") for spot in spots for _ in range(5)]
    nowhere = [{"sensitivity": "withheld", "period": "Historic"} for _ in range(12)]
    return released(*single, *groups, *nowhere)


MEASURES = {
    "rows_in": 200,
    "rows_out": 54,
    "records_without_place": 12,
    "cells_released": 18,
    "cells_suppressed": 7,
    "smallest_cell": 5,
    "displacement_m": {"p05": 1510, "p50": 3120, "p95": 4870},
    "spatial_fit": 0.93,
    "uncertainty_m": 78_012.4,
}


def policy_view() -> PolicyView:
    return PolicyView(
        name=policy().name,
        reason=policy().reason,
        authority="Heritage review board",
        reviewed_on=str(policy().reviewed_on),
        review_by=str(policy().review_by),
        labels=tuple(policy().labels),
        rules=tuple(sentences.rule_sentences(policy())),
        minimum_count=policy().minimum_count,
        key_id=policy().key_id,
        kept=tuple(policy().columns.keep),
        withheld=tuple(policy().columns.withhold),
        wording=policy().wording,
    )


@cache
def maps() -> tuple[bytes, bytes]:
    """Before and after."""
    outline = load_outline(RESOURCES, heritage().key.aoi)
    extent = heritage().extent
    assert extent is not None
    before = view.places_before(register(), heritage(), "sensitivity")
    after = view.places_after(release(), heritage(), "sensitivity")
    return (
        draw_map(before, extent, title="Before: true places", outline=outline),
        draw_map(after, extent, title="After: what would be published", outline=outline),
    )


def restricted_review() -> ReviewView:
    before, after = maps()
    published = release()
    return ReviewView(
        key="heritage-sites:kansas_statewide:5:2026-10:v1-0-0",
        title=heritage().title,
        dataset=heritage().dataset,
        window="October 2026",
        revision=3,
        release_digest="3f9a" * 16,
        content_hash="b81c" * 16,
        policy=policy_view(),
        verification=Verification(passed=True),
        measures=sentences.measure_rows(MEASURES),
        sample=view.sample(published, wording=policy().wording),
        difference=view.difference(published.slice(4), published),
        after_map=after,
        before_map=before,
        restricted=True,
    )


def public_review() -> ReviewView:
    return replace(restricted_review(), restricted=False, before_map=None)

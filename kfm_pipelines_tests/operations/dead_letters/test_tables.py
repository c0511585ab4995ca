"""Letters are found by class, dataset, key and age."""

import pytest

from kfm_pipelines.operations.dead_letters.tables import LetterFilter, count_letters, find_letters
from kfm_pipelines_tests.fixtures.runs.letters import work_directly
from kfm_pipelines_tests.fixtures.sites.site import Site

HOUR = 3600.0


@pytest.mark.slow
def test_letters_are_found_by_class_dataset_key_and_age(site: Site) -> None:
    put = site.put(0, data=b"no parquet")
    site.put(10, data=b"no parquet")
    site.drain()
    site.send("rubbish")
    site.send(site.auto_update_message(put, asset_uri="s3://elsewhere/object.parquet"))
    work_directly(site.services)
    by = {row["key"] or row["triage"]: row["id"] for row in site.fetch("SELECT id, key, triage FROM kfm.dead_letters")}
    early, late, rubbish, elsewhere = by[site.key(0)], by[site.key(10)], by["schema"], by["permission"]
    site.services.database.execute(
        "UPDATE kfm.dead_letters SET changed_at = clock_timestamp() - interval '3 hours' WHERE id = ANY(%(ids)s)",
        {"ids": [late, rubbish]},
    )

    for conditions, expected in (
        (LetterFilter(), {early, late, rubbish, elsewhere}),
        (LetterFilter(triage="permission"), {elsewhere}),
        (LetterFilter(triage="care"), set()),
        (LetterFilter(dataset="usgs/streamflow"), {early, late}),
        (LetterFilter(dataset="usgs"), set()),
        (LetterFilter(key=site.key(0)), {early}),
        (LetterFilter(key=site.key(0)[:-9] + "*"), {early}),
        (LetterFilter(key="usgs-streamflow:*"), {early, late}),
        (LetterFilter(key="*streamflow*"), set()),
        (LetterFilter(older_than_seconds=2 * HOUR), {late, rubbish}),
        (LetterFilter(newer_than_seconds=2 * HOUR), {early, elsewhere}),
        (LetterFilter(older_than_seconds=0.0), {early, late, rubbish, elsewhere}),
        (LetterFilter((), "schema", None, "usgs*", 2 * HOUR, 24 * HOUR), {late}),
    ):
        assert {letter.id for letter in find_letters(site.services.database, conditions, 50)} == expected, conditions
    assert len(find_letters(site.services.database, LetterFilter(), 1)) == 1
    assert count_letters(site.services.database, LetterFilter()) == {"permission": 1, "schema": 3}

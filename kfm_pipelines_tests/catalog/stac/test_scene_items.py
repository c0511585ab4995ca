"""Items of scenes are valid by the official schemas of all extensions that they use."""

import dataclasses
import json
from datetime import timedelta
from typing import Any

import pytest
from pystac.validation import validate_dict

from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.catalog.facts import DocumentFacts
from kfm_pipelines.catalog.stac.item import item_document, revision_document
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.stages.compute.process import process
from kfm_pipelines_tests.fixtures.catalog.official_schemas import official_validator
from kfm_pipelines_tests.fixtures.catalog.release import DATA_HREF, FACTS, PROVENANCE
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.scenes import START, kansas, sample_sources

USED = {
    "usgs/landsat-ndvi": {"eo", "landsat", "projection", "raster", "sat", "view"},
    "esa/sentinel-2-scenes": {"eo", "projection", "raster", "sat", "view"},
}


def item(name: str, **remote: Any) -> dict[str, Any]:
    dataset = declared()[name]
    attachments = process(dataset, sample_sources(name), kansas).attachments
    facts = dataclasses.replace(
        FACTS,
        key=f"any:kansas_statewide-tile:{dataset.key.h3_res}:2025-12-04:v1-0-0",
        window_start=START,
        window_end=START + timedelta(days=1),
        table=dataset.table,
        attachments=dataclasses.replace(attachments, remote={**attachments.remote, **remote}),
    )
    files = {
        one.name: DocumentFacts(f"../../../objects/{one.file_name}", sha256(one.data), len(one.data))
        for one in attachments.files
    }
    data = DocumentFacts(DATA_HREF, facts.content_hash, facts.size)
    document: dict[str, Any] = json.loads(item_document(dataset, facts, data, PROVENANCE, files))
    return document


@pytest.mark.parametrize("name", USED)
def test_an_item_is_valid_by_every_extension_that_it_uses(name: str) -> None:
    document, official = item(name), official_validator()
    assert validate_dict(document, validator=official)[1:] == document["stac_extensions"]
    named = {url.split("/")[-3] for url in document["stac_extensions"] if "stac-extensions" in url}
    assert named >= USED[name]
    revised = json.loads(revision_document(document, 1, START, {}, None))
    assert revised["assets"].keys() == document["assets"].keys()


@pytest.mark.parametrize("name", USED)
def test_remote_assets_name_the_bucket_they_are_in_and_who_pays(name: str) -> None:
    document, source = item(name), declared()[name].input
    scheme = document["properties"]["storage:schemes"]["provider"]
    assert (scheme["bucket"], scheme["requester_pays"]) == (source.bucket, True)
    remote = [one for one in document["assets"].values() if one["href"].startswith("s3://")]
    assert remote
    assert all(one["storage:refs"] == ["provider"] and "file:checksum" not in one for one in remote)


@pytest.mark.parametrize("address", ["https://elsewhere.example/x.tif", "/etc/passwd", "file:///etc/passwd"])
def test_a_remote_asset_is_in_a_bucket(address: str) -> None:
    asset = {"href": address, "type": "image/tiff", "roles": ["data"]}
    with pytest.raises(IntegrityBroken, match="is not valid"):
        item("esa/sentinel-2-scenes", elsewhere=asset)

"""A release to describe, and its Item."""

import hashlib
from datetime import timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kfm_pipelines.boxes import BBox
from kfm_pipelines.catalogs.care_facts import CareFacts
from kfm_pipelines.catalogs.keys import Signer
from kfm_pipelines.catalogs.release_facts import DocumentFacts, EnvironmentFacts, InputFacts, ReleaseFacts, StorageFacts
from kfm_pipelines.catalogs.stac import item_document
from kfm_pipelines.catalogs.stac_collection import CollectionFacts
from kfm_pipelines.datasets import Dataset
from kfm_pipelines_tests.events.given import declared
from kfm_pipelines_tests.site import START

STREAMFLOW = declared()["usgs/streamflow"]
KANSAS: BBox = (-102.05, 36.99, -94.59, 40.0)
OPEN = CareFacts("not-sensitive@2", "d" * 64, "public anyway", "KFM data stewards", (), (), None, None, 0.0, None)
INPUT = InputFacts(
    uri="s3://kfm-ingest/usgs/streamflow/one.parquet",
    version=None,
    etag="9" * 32,
    size=4321,
    digest={"sha256": "1" * 64},
    event="2" * 64,
)
SBOM = b'{"components": []}'
ENVIRONMENT = EnvironmentFacts(
    "3.11.7", "CPython", "Linux", "x86_64", "3" * 40, False, hashlib.sha256(SBOM).hexdigest(), "1.2.3"
)
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(b"a key of the tests, 32 bytes long"[:32]))
FACTS = ReleaseFacts(
    key="usgs-streamflow:kansas_statewide:none:2025-12-04T00Z:v1-0-0",
    window_start=START,
    window_end=START + timedelta(hours=1),
    inputs=(INPUT,),
    inputs_hash="b" * 64,
    config="5" * 64,
    care=OPEN,
    gates=("schema",),
    table=STREAMFLOW.table,
    environment=ENVIRONMENT,
    storage=StorageFacts(),
    content_hash="a" * 64,
    size=5000,
    rows=68,
    bbox=KANSAS,
)
COLLECTION = CollectionFacts(
    items=3,
    rows=204,
    bytes=15_000,
    starts=START,
    ends=START + timedelta(hours=3),
    bbox=KANSAS,
    versions=("v1-0-0",),
    years=("2025",),
    table=STREAMFLOW.table,
    policy="not-sensitive@2",
    gates=("schema",),
    keys_with_errors=0,
    has_snapshot=False,
)
DATA_HREF = "../../../objects/sha256/aa/aaaa.parquet"
PROVENANCE = DocumentFacts("../../../objects/sha256/cc/cccc.json", "c" * 64, 900)


def item_of(
    dataset: Dataset, facts: ReleaseFacts, data_href: str = DATA_HREF, provenance: DocumentFacts = PROVENANCE
) -> bytes:
    return item_document(dataset, facts, DocumentFacts(data_href, facts.content_hash, facts.size), provenance)

"""What documents may say about one release. All of it follows from the inputs, the reviewed files and the software: no
document that is hashed knows the time of day, the machine or the run.

Where the release is masked, nothing here lets anybody try out guesses about the unmasked objects: their sizes are left
out, and digests of them are keyed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.boxes import BBox
from kfm_pipelines.catalogs.care_facts import CareFacts
from kfm_pipelines.declarations import Table

PROVENANCE = "provenance.jsonld"  # what documents are called while they are staged
MANIFEST = "run_manifest.json"
ATTESTATION = "attestation.dsse.json"
SBOM = "sbom.cdx.json"
PUBLIC_KEY = "public_key.pem"


@dataclass(frozen=True, slots=True)
class InputFacts:
    """One object that went in, and the message that told of it."""

    uri: str
    version: str | None
    etag: str | None  # None where it would tell of what is masked
    size: int | None  # None as well
    digest: Mapping[str, str]  # `sha256`, or `hmacSha256` where the plain one would tell
    event: str  # identity of the message, keyed where the plain one would tell
    late: bool = False  # it was made after the window had closed


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """The software that made the release, not the machine it ran on."""

    python: str
    implementation: str
    system: str
    machine: str
    commit: str | None  # None where the code is not from a checkout
    dirty: bool | None
    sbom: str  # digest of the list of all that is installed
    kfm: str  # version of this package


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """What may be told of the store: nothing about the machine it is on. No bucket is a folder of files."""

    bucket: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """Everything the documents of one revision of one key are made from."""

    key: str
    window_start: datetime
    window_end: datetime
    inputs: tuple[InputFacts, ...]
    inputs_hash: str  # the one that may be shown
    config: str  # digest of everything reviewed that shapes the bytes
    care: CareFacts
    gates: tuple[str, ...]
    table: Table
    environment: EnvironmentFacts
    storage: StorageFacts
    content_hash: str
    size: int
    rows: int
    bbox: BBox | None


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """A file that another one points to."""

    href: str
    digest: str
    size: int

"""What documents may state about a release: no time, machine or run, and no sizes or digests of masked inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil, cos, radians

from kfm_pipelines.data_files import TABLE_ALONE, Attachments
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.identity import BBox

METRES_PER_DEGREE = 111_320.0
ANYWHERE_DEGREES = 360.0


@dataclass(frozen=True, slots=True)
class ExemptionFacts:
    id: str
    holder: str
    until: str
    reason: str
    signature: str


@dataclass(frozen=True, slots=True)
class CareFacts:
    """The policy and what it did; nothing here derives from unmasked data."""

    policy: str
    policy_digest: str
    reason: str
    authority: str
    labels: tuple[str, ...]
    methods: tuple[str, ...]  # `restricted point: group`, …; empty when nothing is masked
    key_id: str | None
    uncertainty_m: float | None  # the largest published; None when no place is published
    farthest_latitude: float  # of the dataset's extent, where a degree of longitude is shortest
    exemption: ExemptionFacts | None

    @property
    def masked(self) -> bool:
        return bool(self.methods) and self.exemption is None

    @property
    def box_degrees(self) -> float:
        """Returns the side of a box that is sure to contain the true place."""
        if self.uncertainty_m is None:
            return ANYWHERE_DEGREES
        shortest = METRES_PER_DEGREE * max(cos(radians(self.farthest_latitude)), 0.01)
        return ceil(1000 * 2 * self.uncertainty_m / shortest) / 1000

    @property
    def warning(self) -> str:
        return (
            f"Places are masked under policy {self.policy} ({'; '.join(self.methods)}). "
            "They are not where things are; do not use them to find anything."
        )


PROVENANCE = "provenance.jsonld"  # file names while staged
MANIFEST = "run_manifest.json"
ATTESTATION = "attestation.dsse.json"
SBOM = "sbom.cdx.json"
PUBLIC_KEY = "public_key.pem"


@dataclass(frozen=True, slots=True)
class InputFacts:
    uri: str
    version: str | None
    etag: str | None  # None where the input is masked
    size: int | None  # None where the input is masked
    digest: Mapping[str, str]  # `sha256`, or `hmacSha256` where the input is masked
    event: str  # identity of the message, keyed where the input is masked
    late: bool = False  # it came after the window had closed


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """The software that made the release; nothing about the machine."""

    python: str
    implementation: str
    system: str
    machine: str
    commit: str | None  # None where the code is not from a checkout
    dirty: bool | None
    sbom: str  # digest of the list of installed software
    kfm: str  # version of this package


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """The store, without its machine; a folder of files has no bucket."""

    bucket: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    key: str
    window_start: datetime
    window_end: datetime
    inputs: tuple[InputFacts, ...]
    inputs_hash: str  # the public one
    config: str  # digest of the reviewed configuration
    care: CareFacts
    gates: tuple[str, ...]
    table: Table
    environment: EnvironmentFacts
    storage: StorageFacts
    # Known once the data is there.
    content_hash: str = ""
    size: int = 0
    rows: int = 0
    bbox: BBox | None = None
    attachments: Attachments = TABLE_ALONE


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    href: str
    digest: str
    size: int

"""What documents may say about one release. All of it follows from the inputs, the reviewed files and the software: no
document that is hashed knows the time of day, the machine or the run.

Where the release is masked, nothing here lets anybody try out guesses about the unmasked objects: their sizes are left
out, and digests of them are keyed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil, cos, radians

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.bbox import BBox

METRES_PER_DEGREE = 111_320.0
ANYWHERE_DEGREES = 360.0


@dataclass(frozen=True, slots=True)
class ExemptionFacts:
    """Who let the data out unmasked, and until when."""

    id: str
    holder: str
    until: str
    reason: str
    signature: str


@dataclass(frozen=True, slots=True)
class CareFacts:
    """Nothing here comes from unmasked data."""

    policy: str
    policy_digest: str
    reason: str
    authority: str
    labels: tuple[str, ...]
    methods: tuple[str, ...]  # `restricted point: group`, …; none when all is open
    key_id: str | None
    uncertainty_m: float | None  # the largest published; None when no place is
    farthest_latitude: float  # of the dataset's extent, where a degree of longitude is shortest
    exemption: ExemptionFacts | None

    @property
    def masked(self) -> bool:
        return bool(self.methods) and self.exemption is None

    @property
    def box_degrees(self) -> float:
        """One side of a box that surely holds the true place of anything published with one."""
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
    # Known once the data is there.
    content_hash: str = ""
    size: int = 0
    rows: int = 0
    bbox: BBox | None = None


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """A file that another one points to."""

    href: str
    digest: str
    size: int

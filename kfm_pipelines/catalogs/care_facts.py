"""What catalogs say about the care taken with a release: under which policy, on whose authority, how exact."""

from dataclasses import dataclass
from math import ceil, cos, radians

METRES_IN_A_DEGREE = 111_320.0
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
        shortest = METRES_IN_A_DEGREE * max(cos(radians(self.farthest_latitude)), 0.01)
        return ceil(1000 * 2 * self.uncertainty_m / shortest) / 1000

    @property
    def warning(self) -> str:
        return (
            f"Places are masked under policy {self.policy} ({'; '.join(self.methods)}). "
            "They are not where things are; do not use them to find anything."
        )

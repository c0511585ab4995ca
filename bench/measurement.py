"""What a benchmark returns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value and its baseline, measured in the same run on the same machine."""

    name: str
    value: float
    unit: str
    baseline: float

    @property
    def ratio(self) -> float:
        return round(self.value / self.baseline, 2)

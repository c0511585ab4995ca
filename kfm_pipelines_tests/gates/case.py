"""A case of a rule."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from kfm_pipelines.gates.verdict import Severity

S = TypeVar("S")


@dataclass(frozen=True)
class Case(Generic[S]):
    """A rule, something it has nothing to say of, and something it finds fault with."""

    rule: str
    passing: S
    failing: S
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.rule}-{self.severity}"

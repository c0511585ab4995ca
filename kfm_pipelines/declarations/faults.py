"""Faults that a section of a declaration finds in itself, so that all of them can be reported at once."""

from collections.abc import Iterable
from dataclasses import dataclass

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """`path` leads from the section to the field that is wrong."""

    sentence: str
    path: FieldPath = ()


class Faults(ValueError):
    """Says the first fault; holds them all."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__(faults[0].sentence)
        self.faults = faults


def refuse(faults: Iterable[Fault]) -> None:
    """Raises Faults if there is one."""
    if found := tuple(faults):
        raise Faults(found)

"""A problem of a declaration, and guesses at what was meant."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from kfm_pipelines.declarations.faults import FieldPath

SIMILARITY = 0.6


@dataclass(frozen=True, slots=True)
class Problem:
    """An error makes the declaration unusable; a warning leaves something to decide."""

    file: str
    line: int | None
    field: str
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.field, self.message) if part)


def format_path(path: FieldPath) -> str:
    return ".".join(str(part) for part in path)


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Returns the end of a sentence; nothing if no known word is close to what is given."""
    close = get_close_matches(str(given).lower(), known, n=1, cutoff=SIMILARITY)
    return f"; did you mean {close[0]!r}?" if close else ""

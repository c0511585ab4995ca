"""A check and its result. Parts that cannot be read become failed checks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kfm_pipelines.errors import KfmError

# Raised by documents with missing or malformed fields; pyarrow raises OSError for some broken Parquet files.
MALFORMED_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OSError)
# Documents are written one after the other, so they may disagree for a moment.
PUBLICATION_HINT = "if a publication is running, try again when it is over"

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    file: str  # path in the store
    ok: bool
    found: str = ""  # why it failed, or other details
    note: bool = False  # report it although it is ok


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """All checks of one key, or of the catalog around the keys."""

    subject: str
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)


CheckFunction = Callable[[Case], Iterator[Check]]


def run_check(what: str, file: str, function: CheckFunction[Case], case: Case) -> list[Check]:
    """Runs the function and adds a failed check for the file when it raises."""
    checks: list[Check] = []
    try:
        checks.extend(function(case))
    except KfmError as error:
        checks.append(Check(what, file, ok=False, found=str(error)))
    except MALFORMED_ERRORS as error:
        checks.append(Check(what, file, ok=False, found=f"malformed: {type(error).__name__}"))
    return checks

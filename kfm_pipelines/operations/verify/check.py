"""A check, what it said of which file, and how a part that cannot be read becomes one that failed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kfm_pipelines.errors import KfmError

# What a document gives that is JSON and nothing more: a field that is not there, or is not what it should be. Some
# readers of Parquet call a broken file an OSError.
MALFORMED_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OSError)
# Documents are written one after the other, so for a moment they do not agree.
PUBLICATION_HINT = "if a publication is under way, ask again when it is over"

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    what: str
    file: str  # its path in the store
    ok: bool
    found: str = ""  # why not, or what else is worth knowing
    note: bool = False  # whether it is to be told although it is ok


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Everything that was looked at for one key, or for the catalog around them."""

    subject: str
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)


CheckFunction = Callable[[Case], Iterator[Check]]


def run_check(what: str, file: str, function: CheckFunction[Case], case: Case) -> list[Check]:
    """What `look` says; a failure that names the file where it cannot say anything."""
    checks: list[Check] = []
    try:
        checks.extend(function(case))
    except KfmError as error:
        checks.append(Check(what, file, ok=False, found=str(error)))
    except MALFORMED_ERRORS as error:
        checks.append(Check(what, file, ok=False, found=f"not written as it should be: {type(error).__name__}"))
    return checks

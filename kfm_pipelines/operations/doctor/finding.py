"""What one check found, and what to do when it is wrong."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kfm_pipelines.errors import KfmError

FIX_REMEDY = "run `kfm doctor --fix`, or create it as you create the rest of your infrastructure"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    check: str
    ok: bool
    found: str
    remedy: str = ""


DoctorCheck = tuple[str, Callable[[], Iterator[DoctorFinding]]]


def run_checks(checks: Iterable[DoctorCheck]) -> Iterator[DoctorFinding]:
    """Runs all checks. One that fails becomes a finding and does not stop the others."""
    for check, function in checks:
        try:
            yield from function()
        except KfmError as error:
            yield DoctorFinding(check, ok=False, found=str(error), remedy="fix this, then run `kfm doctor` again")

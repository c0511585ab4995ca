"""Promotes a good candidate, in an order that can be repeated: the database first, then the files."""

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfm_pipelines.declarations.dataset import Dataset, load_dataset, load_datasets
from kfm_pipelines.errors import PromotionRefused
from kfm_pipelines.gates.schema_approval import approve_if_changed
from kfm_pipelines.operations.canary.candidate import CanaryCandidate, candidate_path, load_canary_candidate
from kfm_pipelines.operations.canary.shadow_run import may_report_differences
from kfm_pipelines.operations.canary.shadow_store import clear_shadows
from kfm_pipelines.operations.canary.tables import (
    KeyComparison,
    comparisons_with_current,
    count_unsettled_keys,
    record_promotion,
)
from kfm_pipelines.services import Services

MAX_DIFFERENCES = 10


@dataclass(frozen=True, slots=True)
class CandidateStatus:
    candidate: CanaryCandidate
    comparisons: Sequence[KeyComparison]
    reports_differences: bool  # nothing is masked or reviewed
    unsettled: int  # keys of the declared version that are due, in a run or awaiting review

    @property
    def counted(self) -> int:
        """Counts comparisons that have rows: agreement of empty tables proves nothing."""
        return sum(not one.report.get("empty") for one in self.comparisons)

    @property
    def bad(self) -> list[KeyComparison]:
        return [one for one in self.comparisons if not one.good]

    @property
    def refusal(self) -> str | None:
        """Returns why the candidate may not be promoted, or None."""
        who = f"{self.candidate.dataset.dataset}@{self.candidate.version}"
        if self.bad:
            first, faults = self.bad[0], self.bad[0].report["faults"]
            more = f" (and {first.report['faults_in_all'] - 1} more)" if len(faults) > 1 else ""
            why = f"{faults[0]}{more}" if faults else "no reason was recorded"
            return f"{who}: {len(self.bad)} of {len(self.comparisons)} keys are not good; {first.key}: {why}"
        needed = self.candidate.canary.keys
        if self.counted < needed:
            empty = len(self.comparisons) - self.counted
            more = f", and {empty} without rows do not count" if empty else ""
            return f"{who}: {self.counted} keys were compared with this candidate; {needed} are needed{more}"
        if self.unsettled:
            return (
                f"{who}: {self.unsettled} keys of {self.candidate.dataset.key.transform_version} are due, in a run or "
                "waiting for a review; promote when each of them is published or dead-lettered"
            )
        return None

    @property
    def largest_differences(self) -> list[dict[str, Any]]:
        """Returns for each measure the key where it differs most, largest first. Empty for masked or reviewed data."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for one in self.comparisons:
            for difference in one.report.get("statistics", []) if self.reports_differences else []:
                about = (difference["column"], difference["measure"])
                if about not in found or difference["percent"] > found[about]["percent"]:
                    found[about] = {"key": one.key, **difference}
        return sorted(found.values(), key=lambda one: -one["percent"])[:MAX_DIFFERENCES]

    def as_report(self) -> dict[str, Any]:
        return {
            "dataset": self.candidate.dataset.dataset,
            "from_version": self.candidate.dataset.key.transform_version,
            "candidate_version": self.candidate.version,
            "candidate_digest": self.candidate.digest,
            "needed": self.candidate.canary.keys,
            "compared": len(self.comparisons),
            "counted": self.counted,
            "good": len(self.comparisons) - len(self.bad),
            "unsettled": self.unsettled,
            "worst": self.largest_differences,
        }


@dataclass(frozen=True, slots=True)
class PromotionResult:
    dataset: str
    from_version: str | None  # None when an interrupted promotion was finished
    to_version: str
    declaration: Path
    candidate: Path


def read_candidate_status(services: Services, dataset: Dataset) -> CandidateStatus:
    candidate = load_canary_candidate(services, dataset)
    return CandidateStatus(
        candidate,
        comparisons_with_current(services.database, dataset.dataset, candidate.digest),
        may_report_differences(services, dataset, candidate.declaration),
        count_unsettled_keys(services.database, dataset.dataset, dataset.key.transform_version),
    )


def promote(services: Services, name: str, *, actor: str, reason: str, dry_run: bool = False) -> PromotionResult:
    """Raises PromotionRefused unless enough keys are good and none of the current version is unsettled."""
    dataset = load_datasets(services.settings.resources)[name]  # as the files are now
    declarations = sorted((services.settings.resources / "datasets").glob("*.yaml"))
    declaration = next(path for path in declarations if load_dataset(path).dataset == name)  # it may have any name
    if dataset.canary is None:
        return _finish_interrupted(services, dataset, declaration, dry_run)
    status = read_candidate_status(services, dataset)
    if status.refusal:
        raise PromotionRefused(status.refusal)
    version = status.candidate.version
    candidate = candidate_path(services.settings.resources, dataset, version)
    result = PromotionResult(name, dataset.key.transform_version, version, declaration, candidate)
    if not dry_run:
        with _translate_write_errors(declaration, candidate):
            _apply_promotion(services, status, result, actor, reason)
        clear_shadows(services, dataset)
    return result


def _apply_promotion(
    services: Services, status: CandidateStatus, result: PromotionResult, actor: str, reason: str
) -> None:
    """Checks everything that can be refused before recording the decision."""
    if not os.access(result.candidate.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    prepared = _write_new_declaration(result)
    try:
        if load_dataset(prepared) != status.candidate.declaration:
            raise PromotionRefused(f"{result.candidate.name} was changed in the meantime; review it again")
        report = {**status.as_report(), "keys": [one.key for one in status.comparisons]}
        record_promotion(services.database, report, actor, reason)
        # The promoter has seen which columns change, so this approves them for keys of the new version.
        approval = f"promotion of {result.to_version}: {reason}"
        approve_if_changed(services, status.candidate.declaration, actor, approval)
        prepared.replace(result.declaration)
    finally:
        prepared.unlink(missing_ok=True)
    result.candidate.unlink()


def _write_new_declaration(result: PromotionResult) -> Path:
    """Writes the new declaration next to the old one, under a name that nothing reads."""
    prepared = result.declaration.with_name(f".{result.declaration.name}.promoted")
    with prepared.open("wb") as file:
        file.write(result.candidate.read_bytes())
        file.flush()
        os.fsync(file.fileno())
    shutil.copymode(result.declaration, prepared)
    return prepared


def _finish_interrupted(services: Services, dataset: Dataset, declaration: Path, dry_run: bool) -> PromotionResult:
    version = dataset.key.transform_version
    left = candidate_path(services.settings.resources, dataset, version)
    if not left.is_file() or load_dataset(left) != dataset:
        raise PromotionRefused(
            f"{dataset.dataset} names no candidate; name one in the `canary` section of {declaration.name}"
        )
    if not dry_run:
        with _translate_write_errors(declaration, left):
            left.unlink()
        clear_shadows(services, dataset)
    return PromotionResult(dataset.dataset, None, version, declaration, left)


@contextmanager
def _translate_write_errors(declaration: Path, candidate: Path) -> Iterator[None]:
    """Explains what to do where the reviewed files are read-only, as in an image."""
    try:
        yield
    except OSError as error:
        raise PromotionRefused(
            f"the reviewed files cannot be written here ({error.strerror}): where they are reviewed, move "
            f"candidates/{candidate.name} to datasets/{declaration.name}"
        ) from None

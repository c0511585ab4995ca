"""Promotion: a candidate that was found good becomes the declared version, by one swap of the declaration.

Done in an order that can be repeated: the decision is recorded, the new columns are approved, the declaration is
replaced in one step, the candidate's file removed. Whoever is interrupted does it again: a decision not carried out is
recorded twice, and one carried out but not tidied up is finished. What needs the database comes before the swap, since
after it there may be no candidate left to do it for.
"""

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
from kfm_pipelines.operations.canary.shadow_store import clear_shadows
from kfm_pipelines.operations.canary.tables import (
    KeyComparison,
    Promotion,
    comparisons_with_current,
    count_unsettled_keys,
    record_promotion,
)
from kfm_pipelines.services import Services

MAX_DIFFERENCES = 10


@dataclass(frozen=True, slots=True)
class CandidateStatus:
    """How far a candidate has come."""

    candidate: CanaryCandidate
    comparisons: Sequence[KeyComparison]
    unsettled: int = 0  # keys of the version declared now that are neither published nor dead-lettered

    @property
    def needed(self) -> int:
        return self.candidate.canary.keys

    @property
    def counted(self) -> int:
        """That two empty tables are the same shows nothing."""
        return sum(not one.is_empty for one in self.comparisons)

    @property
    def bad(self) -> list[KeyComparison]:
        return [one for one in self.comparisons if not one.good]

    @property
    def refusal(self) -> str | None:
        """Why it may not be promoted; None when it may."""
        who = f"{self.candidate.dataset.dataset}@{self.candidate.version}"
        if self.bad:
            first = self.bad[0]
            return f"{who}: {len(self.bad)} of {len(self.comparisons)} keys are not good; {first.key}: {first_fault(first)}"
        if self.counted < self.needed:
            empty = len(self.comparisons) - self.counted
            more = f", and {empty} without rows do not count" if empty else ""
            return f"{who}: {self.counted} keys were compared with this candidate; {self.needed} are needed{more}"
        if self.unsettled:
            return (
                f"{who}: {self.unsettled} keys of {self.candidate.dataset.key.transform_version} are due, in a run or "
                "waiting for a review; promote when each of them is published or dead-lettered"
            )
        return None

    @property
    def largest_differences(self) -> list[dict[str, Any]]:
        """For each measure that differs anywhere the key where it differs most; the largest first. None where nobody
        may know how much (`comparison_report`)."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for one in self.comparisons:
            for difference in one.report.get("statistics", []) if self.candidate.is_open else []:
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
            "needed": self.needed,
            "compared": len(self.comparisons),
            "counted": self.counted,
            "good": len(self.comparisons) - len(self.bad),
            "unsettled": self.unsettled,
            "worst": self.largest_differences,
        }


@dataclass(frozen=True, slots=True)
class PromotionResult:
    dataset: str
    from_version: str | None  # None: an earlier promotion was only tidied up after
    to_version: str
    declaration: Path
    candidate: Path


def first_fault(comparison: KeyComparison) -> str:
    faults = comparison.report["faults"]
    more = f" (and {comparison.report['faults_in_all'] - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0]}{more}" if faults else "no reason was recorded"


def read_candidate_status(services: Services, dataset: Dataset) -> CandidateStatus:
    candidacy = load_canary_candidate(services, dataset)
    return CandidateStatus(
        candidacy,
        comparisons_with_current(services.database, dataset.dataset, candidacy.digest),
        count_unsettled_keys(services.database, dataset.dataset, dataset.key.transform_version),
    )


def promote(services: Services, name: str, *, actor: str, reason: str, dry_run: bool = False) -> PromotionResult:
    """Make the candidate the declared version; PromotionRefused unless enough keys were compared, all are good, and no
    key of the version before is on its way: it would be made by the wrong declaration."""
    dataset = load_datasets(services.settings.resources)[name]  # as the files are now, whatever was read before
    declaration = declaration_path(services.settings.resources, dataset)
    if dataset.canary is None:
        return _finish_interrupted(services, dataset, declaration, dry_run)
    standing = read_candidate_status(services, dataset)
    if standing.refusal:
        raise PromotionRefused(standing.refusal)
    candidate = candidate_path(services.settings.resources, dataset, standing.candidate.version)
    promoted = PromotionResult(
        dataset=name,
        from_version=dataset.key.transform_version,
        to_version=standing.candidate.version,
        declaration=declaration,
        candidate=candidate,
    )
    if not dry_run:
        with _translate_write_errors(declaration, candidate):
            _apply_promotion(services, standing, promoted, actor, reason)
        clear_shadows(services, dataset)
    return promoted


def declaration_path(resources: Path, dataset: Dataset) -> Path:
    """The file that declares the dataset; it may have any name."""
    paths = sorted((resources / "datasets").glob("*.yaml"))
    return next(path for path in paths if load_dataset(path).dataset == dataset.dataset)


def _apply_promotion(
    services: Services, status: CandidateStatus, result: PromotionResult, actor: str, reason: str
) -> None:
    """Everything that can be refused comes before the decision is recorded."""
    if not os.access(result.candidate.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    prepared = _write_new_declaration(result)
    try:
        if load_dataset(prepared) != status.candidate.declaration:
            raise PromotionRefused(f"{result.candidate.name} was changed in the meantime; look at it again")
        _record_promotion(services, status, result, actor, reason)
        _approve_schema(services, status.candidate.declaration, actor, reason)
        prepared.replace(result.declaration)
    finally:
        prepared.unlink(missing_ok=True)
    result.candidate.unlink()


def _write_new_declaration(result: PromotionResult) -> Path:
    """The new declaration next to the old one, complete, under a name that nothing reads."""
    prepared = result.declaration.with_name(f".{result.declaration.name}.promoted")
    with prepared.open("wb") as file:
        file.write(result.candidate.read_bytes())
        file.flush()
        os.fsync(file.fileno())
    shutil.copymode(result.declaration, prepared)
    return prepared


def _record_promotion(
    services: Services, status: CandidateStatus, result: PromotionResult, actor: str, reason: str
) -> None:
    promotion = Promotion(
        dataset=result.dataset,
        from_version=status.candidate.dataset.key.transform_version,
        to_version=result.to_version,
        candidate_digest=status.candidate.digest,
        actor=actor,
        reason=reason,
        report={**status.as_report(), "keys": [one.key for one in status.comparisons]},
    )
    record_promotion(services.database, promotion)


def _approve_schema(services: Services, candidate: Dataset, actor: str, reason: str) -> None:
    """Whoever promotes has seen which columns change, so that is approved as well; for keys of the new version."""
    approve_if_changed(services, candidate, actor, f"promotion of {candidate.key.transform_version}: {reason}")


def _finish_interrupted(services: Services, dataset: Dataset, declaration: Path, dry_run: bool) -> PromotionResult:
    """The end of a promotion that was interrupted after the swap."""
    version = dataset.key.transform_version
    left = candidate_path(services.settings.resources, dataset, version)
    if not left.is_file() or load_dataset(left) != dataset:
        raise PromotionRefused(f"{dataset.dataset} names no candidate; a `canary` section in {declaration.name} does")
    if not dry_run:
        with _translate_write_errors(declaration, left):
            left.unlink()
        clear_shadows(services, dataset)
    return PromotionResult(dataset.dataset, None, version, declaration, left)


@contextmanager
def _translate_write_errors(declaration: Path, candidate: Path) -> Iterator[None]:
    """Where the reviewed files are part of an image, the change is made where they are reviewed."""
    try:
        yield
    except OSError as error:
        raise PromotionRefused(
            f"the reviewed files cannot be written here ({error.strerror}): where they are reviewed, move "
            f"candidates/{candidate.name} to datasets/{declaration.name}"
        ) from None

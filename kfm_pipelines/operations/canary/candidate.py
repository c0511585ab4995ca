"""Candidates in resources/candidates/: complete declarations of a dataset's next transform version."""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path

import rfc8785

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.policies import Policy, refuse_policy_change
from kfm_pipelines.declarations.dataset import Dataset, load_dataset
from kfm_pipelines.declarations.quality import Canary, Tolerance
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.gates.expectations import suite_digest
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.transforms import source_digest

FOLDER = "candidates"
# A candidate makes the same keys from the same objects.
_SHARED_FIELDS = (
    "dataset", "key.source", "key.aoi", "key.h3_res", "key.window", "key.fold_by", "key.split_by", "input",
)  # fmt: skip


def candidate_path(resources: Path, dataset: Dataset, transform_version: str) -> Path:
    return resources / FOLDER / f"{dataset.pipeline}@{transform_version}.yaml"


def load_candidate(resources: Path, dataset: Dataset, canary: Canary) -> Dataset:
    """Loads the candidate that `canary` names. Raises DeclarationInvalid when it is missing or incompatible."""
    return load_candidate_file(candidate_path(resources, dataset, canary.transform_version), dataset)


def load_candidate_file(path: Path, dataset: Dataset | None) -> Dataset:
    """Loads a candidate of this dataset; None if it is for none that is declared."""
    if dataset is None:
        raise DeclarationInvalid(
            f"{path.name}: is for no declared dataset; a candidate is called PIPELINE@VERSION.yaml"
        )
    if not path.is_file():
        raise DeclarationInvalid(f"{dataset.dataset}: canary names {FOLDER}/{path.name}, which is not there")
    return _read_candidate(path, dataset)


def candidate_paths(resources: Path) -> list[Path]:
    return sorted((resources / FOLDER).glob("*.yaml"))


def is_canary_key(key: str, candidate_version: str, fraction: float) -> bool:
    """The choice is stable, grows with the fraction, and differs from version to version."""
    digest = hashlib.sha256(f"{key}@{candidate_version}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2**64


def _read_candidate(path: Path, dataset: Dataset) -> Dataset:
    candidate = load_dataset(path)
    for field in _SHARED_FIELDS:
        if attrgetter(field)(candidate) != attrgetter(field)(dataset):
            raise DeclarationInvalid(f"{path.name}: {field} must be that of {dataset.dataset}, whose candidate it is")
    version = candidate.key.transform_version
    if path.stem != f"{dataset.pipeline}@{version}":
        raise DeclarationInvalid(f"{path.name}: key.transform_version is {version}; the file must be named after it")
    if version == dataset.key.transform_version:
        raise DeclarationInvalid(f"{path.name}: {dataset.dataset} has version {version} already, so it is no candidate")
    if dataset.review == "required" and candidate.review != "required":
        raise DeclarationInvalid(f"{path.name}: review must be required, as it is of {dataset.dataset}")
    if candidate.canary is not None:
        raise DeclarationInvalid(f"{path.name}: a candidate has no canary of its own")
    return candidate


@dataclass(frozen=True, slots=True)
class CanaryCandidate:
    dataset: Dataset
    declaration: Dataset
    canary: Canary
    digest: str

    @property
    def version(self) -> str:
        return self.declaration.key.transform_version


def load_canary_candidate(services: Services, dataset: Dataset) -> CanaryCandidate:
    """Raises DeclarationInvalid when the dataset names no candidate or an invalid one."""
    if dataset.canary is None:
        raise DeclarationInvalid(f"{dataset.dataset} names no candidate; a `canary` section in its declaration does")
    resources = services.settings.resources
    candidate = load_candidate(resources, dataset, dataset.canary)
    refuse_policy_change(policy_of(services, dataset), candidate)
    suite = suite_digest(resources, candidate.quality.suite)
    digest = candidate_digest(candidate, policy_of(services, candidate), suite, dataset.canary.tolerance)
    return CanaryCandidate(dataset, candidate, dataset.canary, digest)


def candidate_digest(candidate: Dataset, policy: Policy, suite: str | None, tolerance: Tolerance) -> str:
    """Returns a digest of everything that could change a comparison."""
    parts = [
        "kfm-candidate-2",
        candidate.model_dump(mode="json"),
        policy.digest,
        source_digest(candidate.transform),
        suite,
        tolerance.model_dump(mode="json"),
        _package_version(),
    ]
    return hashlib.sha256(rfc8785.dumps(parts)).hexdigest()


def _package_version() -> str | None:
    try:
        return version("kfm-pipelines")
    except PackageNotFoundError:  # run from a folder that is not installed
        return None

"""A dataset's candidate, and the digest that says which one exactly: comparisons count for no other."""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import rfc8785

from kfm_pipelines.candidates import load_candidate
from kfm_pipelines.care.policies import Policy, refuse_if_exchanged
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Canary, Tolerance
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.gates.expectations import suite_digest
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.transforms import source_digest

PACKAGE = "kfm-pipelines"


@dataclass(frozen=True, slots=True)
class Candidacy:
    dataset: Dataset
    candidate: Dataset
    canary: Canary
    digest: str
    is_open: bool  # whether anybody may know how far apart the two are: nothing is masked, and nothing is reviewed

    @property
    def version(self) -> str:
        return self.candidate.key.transform_version


def candidacy_of(workshop: Workshop, dataset: Dataset) -> Candidacy:
    """DeclarationInvalid when the dataset names no candidate, or one that is not right."""
    if dataset.canary is None:
        raise DeclarationInvalid(f"{dataset.dataset} names no candidate; a `canary` section in its declaration does")
    resources = workshop.settings.resources
    candidate = load_candidate(resources, dataset, dataset.canary)
    refuse_if_exchanged(workshop.policy(dataset), candidate)
    suite = suite_digest(resources, candidate.quality.suite)
    digest = candidate_digest(candidate, workshop.policy(candidate), suite, dataset.canary.tolerance)
    is_open = all(workshop.policy(one).is_open and one.review == "none" for one in (dataset, candidate))
    return Candidacy(dataset, candidate, dataset.canary, digest, is_open)


def candidate_digest(candidate: Dataset, policy: Policy, suite: str | None, tolerance: Tolerance) -> str:
    """Changes with whatever could make a comparison come out otherwise: every word of the declaration, thresholds
    included, its policy, the texts of its transform and its suite of expectations, the tolerance it was judged by, and
    our own version."""
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
        return version(PACKAGE)
    except PackageNotFoundError:  # run from a folder that nobody installed
        return None

"""Checks files of declarations: each by itself, against its siblings, and against what it refers to."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kfm_pipelines.care.policies import load_policy, refuse_policy_change
from kfm_pipelines.declarations.dataset import Dataset, load_dataset
from kfm_pipelines.declarations.overlaps import overlaps
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.canary.candidate import candidate_path, candidate_paths, load_candidate_file
from kfm_pipelines.operations.datasets.check.derivation import derivation_problems
from kfm_pipelines.operations.datasets.check.model import ValidatedDocument, validate
from kfm_pipelines.operations.datasets.check.problem import Problem
from kfm_pipelines.operations.datasets.check.references import reference_problems
from kfm_pipelines.operations.datasets.check.source import DeclarationText, read_source


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """`dataset` is None if the file is not a valid declaration."""

    path: Path
    dataset: Dataset | None


@dataclass(frozen=True, slots=True)
class CheckResult:
    files: tuple[CheckedFile, ...]
    candidates: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)

    @property
    def datasets(self) -> list[Dataset]:
        return [one.dataset for one in self.files if one.dataset is not None]


def check_declarations(resources: Path, files: Sequence[Path] = ()) -> CheckResult:
    """Checks these files, or all that are declared."""
    declared = sorted((resources / "datasets").glob("*.yaml"))
    problems: list[Problem] = []
    read: dict[Path, tuple[DeclarationText, ValidatedDocument]] = {}
    for path in files or declared:
        source, found = read_source(path)
        problems += found
        if source is not None:
            read[path] = source, validate(source)
    siblings = _siblings(declared, files) | {path: one.dataset for path, (_, one) in read.items()}
    named = {name: one for one in siblings.values() if (name := getattr(one, "dataset", None))}
    for path, (source, one) in read.items():
        problems += one.problems
        problems += _overlap_problems(path, one.dataset, siblings, source)
        problems += reference_problems(resources, one.dataset, source)
        problems += derivation_problems(resources, one.dataset, named, source)
    valid = {path: one.dataset for path, (_, one) in read.items() if one.is_complete}
    candidates, unfit = _check_candidates(resources, list(valid.values()), everything=not files)
    checked = tuple(CheckedFile(path, valid.get(path)) for path in files or declared)
    return CheckResult(checked, tuple(candidates), (*problems, *unfit))


def _siblings(declared: Sequence[Path], files: Sequence[Path]) -> dict[Path, Dataset]:
    """Returns the valid declarations besides the files that are checked."""
    given = {path.resolve() for path in files}
    found = {}
    for path in declared if files else ():
        if path.resolve() not in given:
            try:
                found[path] = load_dataset(path)
            except KfmError:
                continue  # `kfm datasets check` without a file reports it
    return found


def _overlap_problems(
    path: Path, dataset: Dataset, siblings: Mapping[Path, Dataset], source: DeclarationText
) -> Iterator[Problem]:
    for other_path, other in siblings.items():
        is_itself = other_path.resolve() == path.resolve()
        with suppress(AttributeError):  # what they would be compared by is wrong in one of them
            is_draft_of_it = other.dataset == dataset.dataset and other_path.parent.resolve() != path.parent.resolve()
            if not is_itself and not is_draft_of_it:
                yield from (source.problem(fault.path, fault.sentence) for fault in overlaps(dataset, other))


def _check_candidates(
    resources: Path, datasets: Sequence[Dataset], *, everything: bool
) -> tuple[list[str], list[Problem]]:
    """Returns the valid candidates and the problems of others."""
    versions, problems = [], []
    by_pipeline = {dataset.pipeline: dataset for dataset in datasets}
    named = {candidate_path(resources, one, one.canary.transform_version): one for one in datasets if one.canary}
    listed = {**dict.fromkeys(candidate_paths(resources) if everything else ()), **named}
    for path, naming in sorted(listed.items(), key=lambda one: one[0]):
        dataset = naming or by_pipeline.get(path.stem.partition("@")[0])
        found, unfit = _check_candidate(resources, path, dataset)
        problems += unfit
        versions += [f"{found.dataset}@{found.key.transform_version}"] if found and not unfit else []
    return versions, problems


def _check_candidate(resources: Path, path: Path, dataset: Dataset | None) -> tuple[Dataset | None, list[Problem]]:
    try:
        candidate = load_candidate_file(path, dataset)
        if dataset is not None:
            refuse_policy_change(load_policy(resources, dataset.policy), candidate)
    except KfmError as error:
        return None, [Problem(path.name, None, "", str(error).removeprefix(f"{path.name}: "))]
    source, problems = read_source(path)
    if source is not None:
        problems += reference_problems(resources, candidate, source)
    return candidate, [one for one in problems if one.severity == "error"]

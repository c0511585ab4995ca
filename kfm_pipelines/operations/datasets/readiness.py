"""What a valid declaration still lacks to receive data, and the next command."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.console.output import format_count
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.inbox.unseen import InputState, look_at_input
from kfm_pipelines.operations.datasets.check.pattern import example_of
from kfm_pipelines.services import Services

SILENT_AFTER = timedelta(minutes=5)  # the sensor notes every minute which declarations it has loaded


@dataclass(frozen=True, slots=True)
class MissingStep:
    """One thing that is missing, and what to do about it."""

    dataset: str
    missing: str
    next: str

    def __str__(self) -> str:
        return f"{self.dataset}: {self.missing}. Next: {self.next}"


@dataclass(frozen=True, slots=True)
class Readiness:
    steps: tuple[MissingStep, ...]
    unknown: tuple[str, ...]  # what could not be checked, and why


def steps_from_files(resources: Path, path: Path, dataset: Dataset) -> Iterator[MissingStep]:
    """Yields what the files alone say is missing."""
    name, folder = dataset.dataset, resources / "datasets"
    if path.resolve().parent != folder.resolve():
        yield MissingStep(name, f"{path.name} is not in {folder}, where declarations are read", f"move it to {folder}")
    try:
        undecided = not load_policy(resources, dataset.policy).is_decided
    except KfmError:  # `check` reports it
        return
    if undecided:
        decide = f"have its sensitivity decided in {resources / 'policies' / dataset.policy}.yaml"
        yield MissingStep(name, f"the policy {dataset.policy} is undecided, so nothing would be published", decide)


def steps_from_services(services: Services, path: Path, dataset: Dataset) -> Readiness:
    """Asks the running site; it changes nothing."""
    try:
        state = look_at_input(services, dataset)
    except KfmError as error:
        return Readiness((), (f"{dataset.dataset}: whether its objects are announced: {error}",))
    steps = [*_wiring_steps(state, path), *loading_steps(dataset), *_object_steps(state, dataset)]
    return Readiness(tuple(steps), ())


def _wiring_steps(state: InputState, path: Path) -> Iterator[MissingStep]:
    if state.unannounced:
        yield MissingStep(state.dataset, state.unannounced, f"kfm datasets add {path}")


def loading_steps(dataset: Dataset) -> Iterator[MissingStep]:
    """Yields what keeps the running code from working on the dataset."""
    from kfm_pipelines.orchestration.instance import open_instance
    from kfm_pipelines.orchestration.loaded_code import read_loaded_code

    with open_instance() as instance:
        loaded = read_loaded_code(instance)
    if loaded is None or datetime.now(UTC) - loaded.at > SILENT_AFTER:
        seen = "it has never run" if loaded is None else f"it last ran at {loaded.at:%Y-%m-%d %H:%MZ}"
        yield MissingStep(dataset.dataset, f"no sensor is running ({seen})", "start `kfm up`, or run `kfm work --once`")
    elif dataset.dataset not in loaded.digests:
        yield MissingStep(dataset.dataset, NOT_LOADED, _RELOAD)
    elif not loaded.has(dataset):
        yield MissingStep(dataset.dataset, "the running code has an older version of it", _RELOAD)


NOT_LOADED = "the running code has not loaded it"
_RELOAD = "reload the code location in Dagster (Deployment), or restart `kfm up`"


def _object_steps(state: InputState, dataset: Dataset) -> Iterator[MissingStep]:
    if state.unmatched:
        lie = f"{format_count(state.unmatched, 'object')} under {state.place} would be refused"
        correct = "correct input.object_pattern or input.max_bytes, or move them"
        yield MissingStep(dataset.dataset, f"{lie}: the pattern or the size limit does not fit", correct)
    if state.unseen:
        count = f"{state.unseen} or more" if state.has_more else str(state.unseen)
        past = "was there before it" if count == "1" else "were there before they"
        lie = f"{count} of the objects under {state.place} {past} could be announced"
        yield MissingStep(dataset.dataset, lie, state.take_in)
    elif not (state.matching or state.recent) and dataset.input.provider is None and not dataset.input.upstream:
        example = example_of(dataset.input.object_pattern)
        place = f"s3://{dataset.input.bucket}/{example}" if example else state.place
        yield MissingStep(dataset.dataset, "nothing is uploaded yet", f"kfm datasets upload FILE {place}")

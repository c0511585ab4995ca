"""What a declaration refers to: its policy, authority, area, suites and units; and what is still to be decided."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kfm_pipelines.care.governance import load_authorities
from kfm_pipelines.care.policies import Policy, load_policy, mismatches
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations.areas import area_path, load_area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import UNDECIDED_LICENCE
from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.declarations.splits import members_of
from kfm_pipelines.errors import DeclarationInvalid, KfmError
from kfm_pipelines.gates.expectations import load_suite
from kfm_pipelines.operations.datasets.check.pattern import can_begin_with
from kfm_pipelines.operations.datasets.check.problem import Problem, did_you_mean
from kfm_pipelines.operations.datasets.check.source import DeclarationText
from kfm_pipelines.operations.datasets.check.units import unit_problem


def reference_problems(resources: Path, dataset: Dataset, source: DeclarationText) -> Iterator[Problem]:
    """Checks each reference by itself; one that needs a section that is wrong or missing is skipped."""
    for check in (_pattern_problems, _area_problems, _unit_problems, _policy_problems, _licence_problems):
        try:
            yield from check(resources, dataset, source)
        except AttributeError:
            continue


def _pattern_problems(_: Path, dataset: Dataset, source: DeclarationText) -> Iterator[Problem]:
    prefix = dataset.input.prefix
    if not dataset.input.upstream and not can_begin_with(dataset.input.object_pattern, prefix):
        message = f"can match nothing under the prefix {prefix!r}; it is matched against the whole name of an object"
        yield source.problem(("input", "object_pattern"), message)


def _area_problems(resources: Path, dataset: Dataset, source: DeclarationText) -> Iterator[Problem]:
    """An area needs a shape only where the shape counts; elsewhere a name without one is a warning."""
    name = dataset.key.aoi
    try:
        area = load_area(resources, name)
    except DeclarationInvalid as error:
        known = sorted(path.stem for path in (resources / "aois").glob("*.geojson"))
        hint = did_you_mean(name, known)
        needs_cells = dataset.key.split_by is not None and dataset.key.split_by.h3_res is not None
        is_misspelt = bool(hint) or area_path(resources, name).exists()
        is_needed = is_misspelt or dataset.uses_area or dataset.has_judged_places or needs_cells
        yield (source.problem if is_needed else source.warning)(("key", "aoi"), f"{error}{hint}")
        return
    try:
        if dataset.key.split_by is not None:
            members_of(dataset.key.split_by, lambda: area)
    except DeclarationInvalid as error:
        yield source.problem(("key", "split_by", "h3_res"), str(error).removeprefix("key.split_by: "))


def _unit_problems(_: Path, dataset: Dataset, source: DeclarationText) -> Iterator[Problem]:
    """The columns of a raster follow from its bands."""
    bands: Sequence[Band] = dataset.raster.bands if dataset.raster else ()
    columns = () if bands else dataset.table.columns
    units = {("raster", "bands", place): band.unit for place, band in enumerate(bands)}
    found = {("table", "columns", place): column.unit for place, column in enumerate(columns)}
    for path, unit in {**units, **found}.items():
        if isinstance(unit, str) and (message := unit_problem(unit)):
            yield source.problem((*path, "unit"), message)


def _licence_problems(_: Path, dataset: Dataset, source: DeclarationText) -> Iterator[Problem]:
    if dataset.licence.id == UNDECIDED_LICENCE:
        yield source.warning(("licence", "id"), "is to be decided; write an SPDX id, such as CC0-1.0 or CC-BY-4.0")


def _policy_problems(resources: Path, dataset: Dataset, source: DeclarationText) -> Iterator[Problem]:
    try:
        policy = load_policy(resources, dataset.policy)
    except KfmError as error:
        known = sorted(path.stem for path in (resources / "policies").glob("*.yaml"))
        hint = "" if dataset.policy in known else did_you_mean(dataset.policy, known)
        yield source.problem(("policy",), f"{error}{hint}")
        return
    yield from _authority_problems(resources, policy, source)
    if not policy.is_decided:
        message = f"nobody has decided the policy {policy.name}; nothing is published under it until then"
        yield source.warning(("policy",), message)
    found = mismatches(policy, dataset)
    for mismatch in found:
        yield source.problem(("policy",), f"policy {policy.name} does not suit {dataset.dataset}: {mismatch}")
    if policy.is_decided and (unused := _unused_resolution(dataset, policy)):
        yield source.problem(("key", "h3_res"), unused)
    if not found:  # otherwise nobody knows which columns are published
        yield from _suite_problems(resources, dataset, policy, source)


def _unused_resolution(dataset: Dataset, policy: Policy) -> str | None:
    """Returns why no H3 cells of the resolution in the key are published: rasters, indices and joins make them, and
    masking does, of which the finest count."""
    resolution, masked = dataset.key.h3_res, policy.finest_resolution
    if resolution == "none" or dataset.published_raster is not None or dataset.input.upstream:
        return None
    if masked is None:
        return f"must be none: nothing that is published of {dataset.dataset} has H3 cells"
    if resolution != str(masked):
        return f"must be {masked}, the finest resolution of cells in the policy {policy.name}, or none"
    return None


def _authority_problems(resources: Path, policy: Policy, source: DeclarationText) -> Iterator[Problem]:
    try:
        authorities = load_authorities(resources)
    except KfmError as error:
        yield source.problem(("policy",), str(error))
        return
    if policy.authority not in authorities:
        message = f"policy {policy.name} names the authority {policy.authority!r}, whom nobody declared"
        yield source.problem(("policy",), message + did_you_mean(policy.authority, authorities))


def _suite_problems(resources: Path, dataset: Dataset, policy: Policy, source: DeclarationText) -> Iterator[Problem]:
    table = published_table(dataset, policy)
    for field in ("suite", "deep_suite"):
        name = getattr(dataset.quality, field)
        if name is None:
            continue
        try:
            load_suite(resources, name, table)
        except KfmError as error:
            known = sorted(path.stem for path in (resources / "expectations").glob("*.json"))
            hint = "" if name in known else did_you_mean(name, known)
            yield source.problem(("quality", field), f"{error}{hint}")

"""Masking a whole table. Whatever goes wrong, nothing is released and no sentence says what was in the data."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.features import read_classes, read_features
from kfm_pipelines.care.masks.measures import Measures, measure_release
from kfm_pipelines.care.masks.methods import apply_rule
from kfm_pipelines.care.masks.places import KINDS, read_places
from kfm_pipelines.care.masks.rows import Selection, Source, TableFragment, assemble_release
from kfm_pipelines.care.masks.types import format_record_count
from kfm_pipelines.care.policies import Policy, refuse_if_mismatched
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.care.rules import Omit
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import pyarrow as pa

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class MaskingResult:
    table: "pa.Table"  # as `published_table` says
    crosswalk: "pa.Table"  # row of the unmasked table → record; stays in the restricted tier
    measures: Measures


def mask_table(table: "pa.Table", dataset: Dataset, policy: Policy, secret: bytes) -> MaskingResult:
    """Do to every record what the policy says of its class; PolicyRefused when that cannot be done to all of them."""
    try:
        return _mask(table, dataset, policy, secret)
    except PolicyRefused:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, its message may quote the data
        failure = f"masking failed: {type(error).__name__} in {_innermost_module(error.__traceback__)}"
    # Outside of the handler, so that not even its context leads to the original.
    raise PolicyRefused(failure)


def _mask(table: "pa.Table", dataset: Dataset, policy: Policy, secret: bytes) -> MaskingResult:
    _refuse_unfit(table, dataset, policy)
    source = _read_source(table, dataset, policy, secret)
    pieces = [piece for selection in _selections(source) for piece in _mask_selection(selection)]
    published, crosswalk = assemble_release(source, published_table(dataset, policy), pieces)
    return MaskingResult(published, crosswalk, measure_release(source, pieces))


def _refuse_unfit(table: "pa.Table", dataset: Dataset, policy: Policy) -> None:
    refuse_if_mismatched(policy, dataset)
    if policy.is_open:
        raise PolicyRefused(f"policy {policy.name} is open, so there is nothing to mask")
    declared = [column.name for column in dataset.table.columns]
    for name in declared:
        if name not in table.column_names:
            raise PolicyRefused(f"the declared column {name!r} is missing")
    if others := len(table.column_names) - len(declared):
        raise PolicyRefused(f"the table has {others} more columns than are declared, and no policy speaks of them")


def _read_source(table: "pa.Table", dataset: Dataset, policy: Policy, secret: bytes) -> Source:
    if dataset.extent is None:
        raise PolicyRefused("the dataset has no extent to hold coordinates against")
    return Source(
        table=table,
        declared=dataset.table,
        policy=policy,
        secret=secret,
        classes=read_classes(table, policy),
        features=read_features(table, policy.stable_id),
        places=read_places(table, dataset.table, dataset.extent),
    )


def _selections(source: Source) -> Iterator[Selection]:
    """The records of every class and kind of geometry, also where there are none."""
    import numpy as np

    for sensitivity, of_it in source.classes.items():
        for number, kind in enumerate(KINDS):
            rows = np.flatnonzero(of_it & (source.places.kinds == number))
            yield source.select(sensitivity, kind, rows)


def _mask_selection(selection: Selection) -> list[TableFragment]:
    policy, count = selection.source.policy, len(selection.rows)
    rule = policy.classes[selection.sensitivity].rule_for(selection.kind)
    if rule is None and count:
        raise PolicyRefused(
            f"{format_record_count(count)} a {selection.kind} as place, "
            f"for which policy {policy.name} has no rule in class {selection.sensitivity!r}"
        )
    return apply_rule(selection, rule or Omit(method="omit"))


def _innermost_module(traceback: TracebackType | None) -> str:
    """The innermost of our modules that the error passed through."""
    innermost = "masks"
    while traceback is not None:
        package, _, module = str(traceback.tb_frame.f_globals.get("__name__")).rpartition(".")
        innermost = module if package == _PACKAGE else innermost
        traceback = traceback.tb_next
    return innermost

"""Masks a table: reads its records, applies the rule of each class and kind of geometry, and assembles the release."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

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


def mask(table: pa.Table, dataset: Dataset, policy: Policy, secret: bytes) -> tuple[pa.Table, pa.Table, Measures]:
    """Returns the published table, the crosswalk and the measures."""
    _refuse_unfit(table, dataset, policy)
    if dataset.extent is None:
        raise PolicyRefused("the dataset declares no extent to check coordinates against")
    source = Source(
        table=table,
        declared=dataset.table,
        policy=policy,
        secret=secret,
        classes=read_classes(table, policy),
        features=read_features(table, policy.stable_id),
        places=read_places(table, dataset.table, dataset.extent),
    )
    fragments = [fragment for selection in _selections(source) for fragment in _mask_selection(selection)]
    published, crosswalk = assemble_release(source, published_table(dataset, policy), fragments)
    return published, crosswalk, measure_release(source, fragments)


def _refuse_unfit(table: pa.Table, dataset: Dataset, policy: Policy) -> None:
    refuse_if_mismatched(policy, dataset)
    if not policy.masks:
        raise PolicyRefused(f"policy {policy.name} is {policy.sensitivity}, so there is nothing to mask")
    declared = [column.name for column in dataset.table.columns]
    for name in declared:
        if name not in table.column_names:
            raise PolicyRefused(f"the declared column {name!r} is missing")
    if others := len(table.column_names) - len(declared):
        undeclared = "1 undeclared column" if others == 1 else f"{others} undeclared columns"
        raise PolicyRefused(f"the table has {undeclared}, which no policy covers")


def _selections(source: Source) -> Iterator[Selection]:
    """Yields the records of every class and kind of geometry, empty selections included."""
    for sensitivity, of_class in source.classes.items():
        for number, kind in enumerate(KINDS):
            rows = np.flatnonzero(of_class & (source.places.kinds == number))
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

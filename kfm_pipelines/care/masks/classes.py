"""The class of each record. A record without one, or of one the policy does not know, stops everything."""

from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.order import ranked
from kfm_pipelines.care.masks.sentences import records
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import Sensitivity
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.arrays import Flags


def read_classes(table: "pa.Table", policy: Policy) -> "dict[Sensitivity, Flags]":
    """For each class of the policy, which records are of it. Together they are all."""
    import numpy as np

    if policy.sensitivity is not None:
        return {policy.sensitivity: np.ones(table.num_rows, np.bool_)}
    column = table.column(str(policy.class_column))
    if column.null_count:
        raise PolicyRefused(f"{records(column.null_count)} no class in {policy.class_column!r}")
    found = ranked(column)
    number_of = {value: number for number, value in enumerate(found.values.to_pylist())}
    classes: dict[Sensitivity, Flags] = {name: found.ranks == number_of.get(name, -1) for name in policy.classes}
    if unknown := table.num_rows - sum(int(of_it.sum()) for of_it in classes.values()):
        raise PolicyRefused(
            f"{records(unknown)} a class in {policy.class_column!r} that policy {policy.name} has no rules for"
        )
    return classes

"""Classes and kinds of geometry as numbers, and what the policy says of each pair: a million rows have few of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import GeometryKind, Rule
from kfm_pipelines.care.verifier.reading import Unreadable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Codes = npt.NDArray[np.int32]
    Flags = npt.NDArray[np.bool_]

KINDS: tuple[GeometryKind, ...] = get_args(GeometryKind)
UNKNOWN = -1


def classes_of(policy: Policy, table: "pa.Table", subject: str = "data") -> "Codes":
    """Row by row the place of the class among those of the policy; UNKNOWN where it is none of them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    names = list(policy.classes)
    if policy.class_column is None:
        number = names.index(policy.sensitivity) if policy.sensitivity in names else UNKNOWN
        return np.full(table.num_rows, number, dtype=np.int32)
    if policy.class_column not in table.column_names:
        raise Unreadable(subject, "the column with the class", "no such column")
    column = table.column(policy.class_column)
    texts = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    places = pc.index_in(texts, value_set=pa.array(names, pa.string()))
    found: Codes = places.fill_null(UNKNOWN).to_numpy()
    return found


def those_with(policy: Policy, classes: "Codes", kinds: "Codes", wanted: Callable[[Rule], bool]) -> "Flags":
    """The rows whose class and kind have a rule, and one that is wanted."""
    import numpy as np

    table = np.zeros((len(policy.classes) + 1, len(KINDS) + 1), np.bool_)  # UNKNOWN reads the last, which stays False
    for place, rules in enumerate(policy.classes.values()):
        for kind, rule in rules.rules.items():
            table[place, KINDS.index(kind)] = wanted(rule)
    found: Flags = table[classes, kinds]
    return found

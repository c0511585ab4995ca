"""Compares the columns of two tables by name, type, unit and order. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.declarations.tables import unit_of
from kfm_pipelines.text import truncate_line

MAX_NAME_LENGTH = 80


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """`what` is added, removed, type, nullable, unit or order."""

    column: str
    what: str
    published: str = ""
    candidate: str = ""

    def __str__(self) -> str:
        if self.what in ("added", "removed"):
            return f"column {self.column} is {self.what}"
        if self.what == "order":
            return "the columns come in another order"
        return f"column {self.column}: {self.what} is {self.candidate}, not {self.published}"


def is_tolerated(change: ColumnChange, tolerance: Tolerance) -> bool:
    return tolerance.columns == "any" or (tolerance.columns == "additive" and change.what in ("added", "order"))


def column_changes(published: pa.Schema, candidate: pa.Schema) -> Iterator[ColumnChange]:
    for name in published.names:
        if name not in candidate.names:
            yield ColumnChange(format_name(name), "removed")
    for name in candidate.names:
        if name not in published.names:
            yield ColumnChange(format_name(name), "added")
    shared = [name for name in published.names if name in candidate.names]
    for name in shared:
        before, after = _field_properties(published.field(name)), _field_properties(candidate.field(name))
        for what, was in before.items():
            if after[what] != was:
                yield ColumnChange(format_name(name), what, was, after[what])
    if shared != [name for name in candidate.names if name in published.names]:
        yield ColumnChange("", "order")


def _field_properties(field: pa.Field) -> Mapping[str, str]:
    return {
        "type": format_name(str(field.type)),
        "nullable": "yes" if field.nullable else "no",
        "unit": format_name(unit_of(field) or "none"),
    }


def format_name(name: str) -> str:
    return truncate_line(name, MAX_NAME_LENGTH)

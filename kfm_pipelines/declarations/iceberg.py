"""The Iceberg table of a dataset: all its keys in one table, besides a file of each."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kfm_pipelines.declarations.faults import Fault
from kfm_pipelines.declarations.tables import Table
from kfm_pipelines.declarations.words import DeclarationModel

OWN_PREFIX = "kfm_"  # of the columns that the table has besides those of the dataset


class IcebergTable(DeclarationModel):
    """How the table is partitioned, and how long its history is kept. Declared as `tables: iceberg` or as a section."""

    format: Literal["iceberg"] = "iceberg"
    # By the beginning of the windows. By default months of hours, and years of what is longer.
    period: Literal["day", "month", "year"] | None = None
    # Also by the H3 cell of each row, at this resolution: at most the one that is published.
    cells: Annotated[int, Field(ge=0, le=5)] | None = None
    history_days: Annotated[int, Field(ge=1, le=3650)] = 90

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, values: Any) -> Any:
        return {"format": values} if isinstance(values, str) else values


def iceberg_faults(declared: IcebergTable | None, table: Table) -> Iterator[Fault]:
    """Yields why this table of a dataset cannot be an Iceberg table as declared."""
    if declared is None:
        return
    for place, column in enumerate(table.columns):
        if column.name.startswith(OWN_PREFIX):
            sentence = f"tables: columns of the Iceberg table that begin with {OWN_PREFIX} are ours: {column.name!r}"
            yield Fault(sentence, ("table", "columns", place, "name"))
    if declared.cells is not None and not table.place_columns:
        yield Fault("tables.cells needs rows with a place, and no column holds one", ("tables", "cells"))

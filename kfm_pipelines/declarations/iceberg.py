"""The Iceberg table of a dataset: all its keys in one table, besides a file of each."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

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

"""The schema and partitions of a dataset's table: our columns in front, and what is published behind them.

Columns of a declaration cannot begin with `kfm_` where there is a table.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import OWN_PREFIX
from kfm_pipelines.errors import SchemaRefused
from kfm_pipelines.gates.schema_approval import versions_of
from kfm_pipelines.services import Services

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

KEY, REVISION, VERSION, WINDOW, CELL = (
    f"{OWN_PREFIX}{name}" for name in ("key", "revision", "version", "window_start", "cell")
)
_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # Of rows in memory. A key is replaced by writing the files anew that have rows of it.
    "write.target-file-size-bytes": str(64 * 1024 * 1024),
    # Keys have a long common beginning; cut to 16 characters, their bounds would say nothing.
    f"write.metadata.metrics.column.{KEY}": "full",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
}


def create_table(catalog: "SqlCatalog", dataset: Dataset, name: tuple[str, str], location: str) -> "Table":
    """Creates the table with our columns only; `evolve` adds the others. Returns it if another process was faster."""
    catalog.create_namespace_if_not_exists(name[0])
    properties = _PROPERTIES | {"comment": dataset.title, "kfm.dataset": dataset.dataset}
    return catalog.create_table_if_not_exists(
        name, own_schema(dataset), location, partition_spec=partition_spec(dataset), properties=properties
    )


def own_schema(dataset: Dataset) -> "Schema":
    from pyiceberg.schema import Schema
    from pyiceberg.types import IntegerType, NestedField, StringType, TimestamptzType

    fields = [
        NestedField(1, KEY, StringType(), required=True, doc="Key of the publication that the row is in"),
        NestedField(2, REVISION, IntegerType(), required=True, doc="Its revision"),
        NestedField(3, VERSION, StringType(), required=True, doc="Transform version of the key"),
        NestedField(4, WINDOW, TimestamptzType(), required=True, doc="Beginning of the window of the key"),
    ]
    if dataset.tables and dataset.tables.cells is not None:
        doc = f"H3 cell of resolution {dataset.tables.cells} that the published place lies in"
        fields.append(NestedField(5, CELL, StringType(), required=False, doc=doc))
    return Schema(*fields)


def partition_spec(dataset: Dataset) -> "PartitionSpec":
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform, IdentityTransform, MonthTransform, YearTransform

    transforms: dict[str, Any] = {"day": DayTransform(), "month": MonthTransform(), "year": YearTransform()}
    period = period_of(dataset)
    fields: list[PartitionField] = [PartitionField(4, 1000, transforms[period], f"{OWN_PREFIX}{period}")]
    if dataset.tables and dataset.tables.cells is not None:
        fields.append(PartitionField(5, 1001, IdentityTransform(), CELL))
    return PartitionSpec(*fields)


def period_of(dataset: Dataset) -> str:
    if dataset.tables and dataset.tables.period:
        return dataset.tables.period
    return "month" if dataset.key.window == "hour" else "year"


def evolve(services: Services, dataset: Dataset, table: "Table", published: "pa.Schema") -> "Table":
    """Adds the columns that the table does not have. Raises SchemaRefused unless their schema was approved."""
    import pyarrow as pa

    known = set(table.schema().column_names)
    missing = [field for field in published if field.name not in known]
    if not missing:
        return table
    _require_approved(services, dataset, [field.name for field in missing])
    fields = [pa.field(one.name, one.type, metadata=_doc(one)) for one in missing]
    with table.update_schema() as update:
        update.union_by_name(pa.schema(fields))
    return table.refresh()


def _require_approved(services: Services, dataset: Dataset, names: Iterable[str]) -> None:
    """Boxes are added to the columns of a schema, and not listed in it."""
    from kfm_pipelines.declarations.vectors import COVERING

    with services.database.transaction() as connection:
        approved = {name for version in versions_of(connection, dataset.dataset) for name in version.columns}
    unknown = sorted(set(names) - approved - {COVERING})
    if unknown:
        raise SchemaRefused(f"{dataset.dataset}: the table has no column {unknown[0]}, and no approved schema has it")


def _doc(field: "pa.Field") -> dict[str, str]:
    description = (field.metadata or {}).get(b"description")
    return {"doc": description.decode()} if description else {}

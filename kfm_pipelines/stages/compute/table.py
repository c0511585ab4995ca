"""Computes a key's table: all of its objects as one table in the declared form.

Columns that do not fit that form are left as they are for the schema gate to report; only unreadable objects are
refused here. The order of the objects and of their rows does not affect the result.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import rfc8785

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates.verdict import DUPLICATES
from kfm_pipelines.parquet.geoparquet import points_of
from kfm_pipelines.stages.compute.join import join_upstreams
from kfm_pipelines.stages.compute.readers import read_object
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.rows import arrange_rows
from kfm_pipelines.stages.compute.transforms import apply_transform

if TYPE_CHECKING:
    import pyarrow as pa


def compute(dataset: Dataset, objects: Sequence[SourceObject]) -> Computed:
    if not objects:  # all were deleted
        return Computed(declared_schema(dataset.table).empty_table())
    if dataset.input.upstream:
        return _arrange(join_upstreams(dataset, objects), dataset, {})
    names = [source.asset_uri for source in objects]
    tables = [conform(read_object(one.data, one.asset_uri, dataset), one.asset_uri, dataset) for one in objects]
    return merge(tables, names, dataset)


def merge(tables: "Sequence[pa.Table]", names: Sequence[str], dataset: Dataset) -> Computed:
    """Returns the tables of a key's objects as one: transformed, in order, without duplicates or conflicts."""
    import pyarrow as pa

    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        listed = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
        kinds = _describe_type_conflict(tables)
        raise InputUnreadable(f"the objects of this key do not form one table: {kinds}, in {listed}") from None
    if dataset.transform is not None:
        table = apply_transform(table, dataset.transform)
    return _arrange(table, dataset, _stated_units(tables))


def _arrange(table: "pa.Table", dataset: Dataset, stated_units: Mapping[str, str]) -> Computed:
    ordered, duplicates = arrange_rows(_apply_declared_fields(table, dataset, stated_units), dataset.table)
    left_out = {DUPLICATES: duplicates} if duplicates else {}
    return Computed(_add_points(ordered, dataset.table), left_out=left_out)


def inputs_hash(config_digest: str, objects: Sequence[SourceObject]) -> str:
    """Digest of the content of every object, which of them are late, and the configuration."""
    contents = sorted([source.asset_uri, hashlib.sha256(source.data).hexdigest()] for source in objects)
    late = sorted(source.asset_uri for source in objects if source.late)
    # Without late objects the digest is the one from before lateness was recorded.
    parts = ["kfm-inputs-1", config_digest, contents, *([late] if late else [])]
    return hashlib.sha256(rfc8785.dumps(parts)).hexdigest()


def conform(read: "pa.Table", name: str, dataset: Dataset) -> "pa.Table":
    """Casts declared columns where that loses nothing and puts them in order, followed by undeclared ones."""
    import pyarrow as pa

    table = _rename_columns(read, name, dataset)
    declared = declared_schema(dataset.table)
    known = [name for name in declared.names if name in table.column_names]
    others = sorted(name for name in table.column_names if name not in declared.names)
    columns = [_cast_if_lossless(table.column(name), declared.field(name).type) for name in known]
    columns += [table.column(name) for name in others]
    units = [_stated_unit(table.schema.field(name)) for name in known + others]
    fields = [
        pa.field(name, column.type, metadata={"unit": unit} if unit else None)
        for name, column, unit in zip(known + others, columns, units, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _stated_unit(field: "pa.Field") -> str | None:
    """Returns the unit in the field's metadata, which producers write in different ways."""
    metadata = {name.lower(): value for name, value in (field.metadata or {}).items()}
    stated = metadata.get(b"unit") or metadata.get(b"units") or b""
    return stated.decode("utf-8", "replace").strip() or None


def _stated_units(tables: "Sequence[pa.Table]") -> dict[str, str]:
    """Returns the units that the objects state for each column; most state none."""
    stated: dict[str, set[str]] = {}
    for table in tables:
        for field in table.schema:
            if unit := _stated_unit(field):
                stated.setdefault(field.name, set()).add(unit)
    return {name: ", ".join(sorted(units)) for name, units in stated.items()}


def _rename_columns(table: "pa.Table", uri: str, dataset: Dataset) -> "pa.Table":
    """Gives columns their declared names and refuses duplicates."""
    names = {column.source: column.name for column in dataset.table.columns if column.source}
    for name, count in Counter(table.column_names).items():
        if count > 1:
            raise InputUnreadable(f"{uri}: the column {name[:80]!r} is in the file more than once")
    renamed = [names.get(name, name) for name in table.column_names]
    for original, name in zip(table.column_names, renamed, strict=True):
        if renamed.count(name) > 1 and original != name:
            raise InputUnreadable(f"{uri}: both {original!r} and {name!r} are in the file, as one column")
    return table.rename_columns(renamed)


def _describe_type_conflict(tables: "Sequence[pa.Table]") -> str:
    """Names the column with incompatible types. Arrow's own message is not used because it may quote metadata."""
    import pyarrow as pa

    fields = [field.remove_metadata() for table in tables for field in table.schema]
    for name in sorted({field.name for field in fields}):
        alike = [field for field in fields if field.name == name]
        try:
            pa.unify_schemas([pa.schema([field]) for field in alike], promote_options="permissive")
        except pa.ArrowException:
            kinds = " and ".join(sorted({str(field.type)[:80] for field in alike})[:3])
            return f"the column {name[:80]!r} is {kinds}"
    return "their columns differ"


def _cast_if_lossless(column: "pa.ChunkedArray", target: "pa.DataType") -> "pa.ChunkedArray":
    import pyarrow as pa

    inner = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)
    if not pa.types.is_null(column.type) and is_text != pa.types.is_string(target):
        return column  # text is never parsed into numbers, nor numbers formatted as text
    try:
        return column.cast(target, safe=True)
    except pa.ArrowException:
        return column


def _apply_declared_fields(table: "pa.Table", dataset: Dataset, stated_units: Mapping[str, str]) -> "pa.Table":
    """Adds units and descriptions to columns of the declared type. A unit stated by the objects wins, for the gate."""
    import pyarrow as pa

    declared = declared_schema(dataset.table)
    fields = []
    for field in table.schema:
        as_declared = declared.field(field.name) if field.name in declared.names else None
        if as_declared is None or as_declared.type != field.type:
            fields.append(field.remove_metadata())
        else:
            has_nulls = table.column(field.name).null_count > 0
            as_found = as_declared.with_nullable(as_declared.nullable or has_nulls)
            unit = {b"unit": stated_units[field.name].encode()} if field.name in stated_units else {}
            fields.append(as_found.with_metadata({**as_declared.metadata, **unit}))
    order = [name for name in declared.names if name in table.column_names]
    arranged = pa.Table.from_arrays(table.columns, schema=pa.schema(fields))
    return arranged.select(order + sorted(name for name in table.column_names if name not in order))


def _add_points(table: "pa.Table", declaration: Table) -> "pa.Table":
    """Adds the derived geometry column in its declared position; empty when the coordinates are not as declared."""
    import pyarrow as pa

    derived = declaration.derived_column
    if derived is None:
        return table
    if derived.name in table.column_names:
        raise InputUnreadable(f"the objects of this key have a column {derived.name!r}, which is made of coordinates")
    declared = declared_schema(declaration)
    names = [name for name in (declaration.longitude_column, declaration.latitude_column) if name]
    good = all(name in table.column_names and table.schema.field(name).type == pa.float64() for name in names)
    pair = [table.column(name) for name in names if good]
    points = points_of(*pair) if pair else pa.nulls(table.num_rows, pa.binary())
    field = declared.field(derived.name)
    place = sum(name in table.column_names for name in declared.names[: declared.get_field_index(derived.name)])
    return table.add_column(place, field.with_nullable(field.nullable or points.null_count > 0), points)

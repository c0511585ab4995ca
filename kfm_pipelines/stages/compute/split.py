"""Gives the rows of an object to the members that share it, such as the counties of a statewide file.

The table of all rows is made first, conflicts settled: a correction that moves a row to another member takes it away
from the former one. What a member gets depends on its own rows alone, so the others cannot change its bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.splits import SplitBy, members_of
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.events import member_of_key
from kfm_pipelines.stages.compute.process import process_key
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.text import quote_value

if TYPE_CHECKING:
    import pyarrow as pa

NO_MEMBER = "rows of no member"
EXAMPLES = 3

LoadArea = Callable[[], Area]


@dataclass(frozen=True, slots=True)
class SplitTable:
    """A computed table and the member of each of its rows, null for none."""

    whole: Computed
    members: "pa.Array"

    def of(self, member: str, dataset: Dataset) -> Computed:
        import pyarrow.compute as pc

        rows = self.whole.table.filter(pc.equal(self.members, member))
        left_out = dict(self.whole.left_out)
        if self.members.null_count:
            left_out[NO_MEMBER] = self.members.null_count
        return replace(self.whole, table=_with_own_nullability(rows, dataset), left_out=left_out)


class Splitter:
    """Computes the tables of keys. The keys of one window share their objects, so the last table that was split is
    held, and its objects are read once for all of them."""

    def __init__(self) -> None:
        self._objects: tuple[object, ...] = ()
        self._last: SplitTable | None = None
        self.has_read = True  # whether the last key was the first of those that share its objects

    def process(self, dataset: Dataset, objects: Sequence[SourceObject], load_area: LoadArea, key: str) -> Computed:
        """Returns all rows where the dataset does not split its objects, and otherwise those of the key's member."""
        if dataset.key.split_by is None or not objects:
            self.has_read = True
            return process_key(dataset, objects, load_area, key)
        shared = (dataset.digest, *((one.asset_uri, one.data) for one in objects))
        self.has_read = self._last is None or self._objects != shared
        if self._last is None or self.has_read:
            whole = process_key(dataset, objects, load_area, key)
            self._last, self._objects = SplitTable(whole, _members(dataset, whole.table, load_area)), shared
        return self._last.of(member_of_key(dataset, key), dataset)


def refuse_rows_of_no_member(dataset: Dataset, table: "pa.Table", load_area: LoadArea) -> None:
    """Raises InputUnreadable if the dataset splits its objects and a row belongs to no key."""
    if dataset.key.split_by is not None:
        _members(dataset, table, load_area)


def _members(dataset: Dataset, table: "pa.Table", load_area: LoadArea) -> "pa.Array":
    """Returns the member of each row. Raises InputUnreadable for rows of none, unless they are to be ignored."""
    import pyarrow as pa
    import pyarrow.compute as pc

    split = dataset.key.split_by or SplitBy()
    values = _cells(dataset, table, split.h3_res) if split.h3_res is not None else _values(dataset, table, split)
    allowed = members_of(split, load_area)
    names = split.member_of_value if split.h3_res is None else dict(zip(allowed, allowed, strict=True))
    places = pc.index_in(values, pa.array(list(names), pa.string()), skip_nulls=True)
    if places.null_count and split.others == "refuse":
        raise _refusal(split, pc.filter(values, pc.is_null(places)))
    return pa.array(list(names.values()), pa.string()).take(places)


def _values(dataset: Dataset, table: "pa.Table", split: SplitBy) -> "pa.Array":
    import pyarrow as pa

    name = str(split.column)
    declared = declared_schema(dataset.table).field(name)
    if name not in table.column_names or table.schema.field(name).type != declared.type:
        kind = dataset.table.column(name).type
        raise InputUnreadable(f"the objects of this key cannot be split: they have no column {name!r} of type {kind}")
    return table.column(name).combine_chunks().cast(pa.string())


def _cells(dataset: Dataset, table: "pa.Table", resolution: int) -> "pa.Array":
    """Returns the names of cells, null for what is no place on earth."""
    import h3
    import pyarrow as pa

    names = [str(dataset.table.longitude_column), str(dataset.table.latitude_column)]
    if any(name not in table.column_names or table.schema.field(name).type != pa.float64() for name in names):
        raise InputUnreadable(
            f"the objects of this key cannot be split: they have no columns {' and '.join(names)} of type float64"
        )
    places = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    cells = (
        h3.latlng_to_cell(latitude, longitude, resolution) if _is_on_earth(longitude, latitude) else None
        for longitude, latitude in places
    )
    return pa.array(list(cells), pa.string())


def _is_on_earth(longitude: float | None, latitude: float | None) -> bool:
    return longitude is not None and latitude is not None and -180 <= longitude <= 180 and -90 <= latitude <= 90


def _refusal(split: SplitBy, values: "pa.Array") -> InputUnreadable:
    """Names examples, because only datasets that mask nothing may be split."""
    found = sorted({quote_value(value)[:60] for value in values.drop_null().unique().to_pylist()})
    examples = ", ".join([*found[:EXAMPLES], *(["no value"] if values.null_count else [])])
    rule = split.column or f"a cell of resolution {split.h3_res}"
    count = f"{len(values)} rows have" if len(values) > 1 else "1 row has"
    remedy = "add it to key.split_by.members" if split.column else "correct the area or the places"
    return InputUnreadable(
        f"{count} {rule} that is no member ({examples}{', …' if len(found) > EXAMPLES else ''}); {remedy}, or declare "
        "others: ignore"
    )


def _with_own_nullability(rows: "pa.Table", dataset: Dataset) -> "pa.Table":
    """A column that may not be null is marked as nullable where it has nulls, which only some members may have."""
    import pyarrow as pa

    declared = declared_schema(dataset.table)
    fields: Mapping[str, pa.Field] = {field.name: field for field in declared}
    schema = [
        field.with_nullable(fields[field.name].nullable or column.null_count > 0)
        if field.name in fields and fields[field.name].type == field.type
        else field
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(rows.columns, schema=pa.schema(schema, metadata=rows.schema.metadata))

"""Rows of a table: what is published of keys with our columns in front, and the digest that compares them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.policies import RESERVED_COLUMNS
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.events.canonical_key import CanonicalKey
from kfm_pipelines.sinks.table.schema import CELL, KEY, REVISION, VERSION, WINDOW
from kfm_pipelines.state.transactions import KeyFacts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

_CELL_COLUMNS = (RESERVED_COLUMNS[1], "h3_cell")  # of masked places, and of rasters and joins


def rows_of_key(dataset: Dataset, facts: KeyFacts, data: bytes) -> "pa.Table":
    """Returns the published rows of a key as its table has them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    published = pq.read_table(pa.BufferReader(data)).replace_schema_metadata()
    revision = facts.current.revision if facts.current else 0
    if facts.current and facts.current.rows != len(published):
        raise IntegrityBroken(
            f"{facts.key}: {len(published)} rows were published, and the log has {facts.current.rows}"
        )
    own = {
        KEY: (facts.key, pa.string(), False),
        REVISION: (revision, pa.int32(), False),
        VERSION: (CanonicalKey.parse(facts.key).transform_version, pa.string(), False),
        WINDOW: (facts.window[0], pa.timestamp("us", tz="UTC"), False),
    }
    fields = [pa.field(name, kind, nullable) for name, (_, kind, nullable) in own.items()]
    columns: list[pa.Array] = [pa.repeat(pa.scalar(value, kind), len(published)) for value, kind, _ in own.values()]
    if dataset.tables and dataset.tables.cells is not None:
        fields.append(pa.field(CELL, pa.string()))
        columns.append(cells_of(published, dataset, dataset.tables.cells))
    fields += [field.with_nullable(True) for field in published.schema]
    return pa.Table.from_arrays([*columns, *published.columns], schema=pa.schema(fields))


def is_exempted(item: Mapping[str, Any]) -> bool:
    """Whether an exemption has released the data unmasked. A table has no such rows."""
    return "kfm:exemption" in item["properties"]


def cells_of(published: "pa.Table", dataset: Dataset, resolution: int) -> "pa.Array":
    """Returns the H3 cell of each row, from what is published of its place and never finer; null where nothing is."""
    import h3
    import pyarrow as pa

    names = published.column_names
    cells = next((name for name in _CELL_COLUMNS if name in names), None)
    if cells is not None:
        found = published.column(cells).to_pylist()
        finest = {one: min(resolution, h3.get_resolution(one)) for one in set(found) - {None}}
        parents = {one: h3.cell_to_parent(one, known) for one, known in finest.items()}
        return pa.array([parents.get(one) for one in found], pa.string())
    places = [None if one is None else h3.latlng_to_cell(*one, resolution) for one in _places(published, dataset)]
    return pa.array(places, pa.string())


def _places(published: "pa.Table", dataset: Dataset) -> Iterable[tuple[float, float] | None]:
    """Yields latitude and longitude of each row: of its point, or inside its geometry."""
    longitude, latitude, geometry = (
        name if name in published.column_names else None
        for name in (dataset.table.longitude_column, dataset.table.latitude_column, dataset.table.geometry_column)
    )
    if longitude and latitude:
        pairs = zip(published.column(latitude).to_pylist(), published.column(longitude).to_pylist(), strict=True)
        yield from (None if None in pair else pair for pair in pairs)
    elif geometry:
        import shapely

        points = shapely.point_on_surface(shapely.from_wkb(published.column(geometry).to_pylist()))
        yield from (None if point is None or point.is_empty else (point.y, point.x) for point in points)
    else:
        yield from [None] * len(published)


def rows_of(windows: Mapping[str, datetime | None]) -> "BooleanExpression":
    """Returns the condition for the rows of these keys. The beginnings of their windows, where all are known, let
    readers leave out other partitions."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, In, LessThanOrEqual

    of_keys: BooleanExpression = In(KEY, list(windows))
    starts = [start for start in windows.values() if start is not None]
    if len(starts) < len(windows):
        return of_keys
    since = GreaterThanOrEqual(WINDOW, min(starts).isoformat())
    until = LessThanOrEqual(WINDOW, max(starts).isoformat())
    return And(since, until, of_keys)


def digest_of_rows(rows: "pa.Table", columns: Sequence[str]) -> str:
    """Returns the digest of these columns of all rows, whatever their order, chunks and offsets in memory."""
    import pyarrow as pa

    chosen = rows.select(columns)
    plain = pa.schema([pa.field(field.name, _plain(field.type)) for field in chosen.schema])
    chosen = chosen.cast(plain)
    sortable = [(field.name, "ascending") for field in plain if not pa.types.is_nested(field.type)]
    ordered = chosen.sort_by(sortable).combine_chunks() if len(chosen) else chosen
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, plain) as writer:
        for batch in ordered.to_batches(max_chunksize=1 << 16):
            writer.write_batch(batch)
    return sha256(sink.getvalue().to_pybytes())


def _plain(kind: "pa.DataType") -> "pa.DataType":
    """Readers of tables return long strings and binaries."""
    import pyarrow as pa

    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind

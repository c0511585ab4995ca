"""The table of a derived dataset: what its upstreams have published of a window, row by row on H3 cells, and joined.

Reads nothing but the releases. Their order does not affect the result.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from kfm_pipelines.declarations import TransformName
from kfm_pipelines.declarations.dataset import Dataset, pipeline_of
from kfm_pipelines.declarations.inputs import Limits
from kfm_pipelines.declarations.upstreams import Upstream
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.events.notice import read_release_uri
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines.stages.compute.transforms import apply_join
from kfm_pipelines.stages.compute.transforms.cells import CELL

if TYPE_CHECKING:
    import pyarrow as pa


def join_upstreams(dataset: Dataset, objects: Sequence[SourceObject]) -> "pa.Table":
    resolution = int(dataset.key.h3_res)
    tables = {}
    for upstream in dataset.input.upstream:
        releases = [one for one in objects if _pipeline(one) == pipeline_of(upstream.dataset)]
        if releases:
            rows = _read(releases, upstream, dataset.input.limits)
            tables[upstream.dataset] = _put_on_cells(rows, upstream, resolution)
    return apply_join(tables, cast(TransformName, dataset.transform))


def _pipeline(source: SourceObject) -> str | None:
    found = read_release_uri(source.asset_uri)
    return found[0] if found else None


def _read(releases: Sequence[SourceObject], upstream: Upstream, limits: Limits) -> "pa.Table":
    """Returns the rows of all releases as one table, always in the same order."""
    import pyarrow as pa

    tables = [
        read_parquet(one.data, one.asset_uri, unpacked_limit=limits.unpacked_bytes, row_limit=limits.rows)
        for one in sorted(releases, key=lambda one: one.asset_uri)
    ]
    try:
        table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException:
        raise InputUnreadable(f"the releases of {upstream.dataset} do not form one table") from None
    limits.refuse(upstream.dataset, rows=table.num_rows)
    for name in upstream.cells.columns:
        if name not in table.column_names:
            raise InputUnreadable(f"{upstream.dataset}: its releases have no column {name!r}, which gives the cells")
    return table


def _put_on_cells(rows: "pa.Table", upstream: Upstream, resolution: int) -> "pa.Table":
    """Adds the column of cells. A row is repeated for each cell of its area, and left out if it has no place or an
    undeclared area."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _cells(rows, upstream, resolution)
    places = pc.list_parent_indices(cells)
    found = rows.take(places)
    if CELL in found.column_names:
        found = found.drop_columns([CELL])
    return found.append_column(pa.field(CELL, pa.string()), pc.list_flatten(cells))


def _cells(rows: "pa.Table", upstream: Upstream, resolution: int) -> "pa.Array":
    """Returns the cells of each row."""
    import pyarrow as pa

    by = upstream.cells
    named = zip(*(rows.column(name).to_pylist() for name in by.columns), strict=True)
    if by.areas:
        touched = {tuple(area.values): sorted(set(area.cells)) for area in by.areas}
        found = [touched.get(values, []) for values in named]
    elif by.cell:
        found = [_checked_cell(value, upstream, resolution) for (value,) in named]
    else:
        found = _cells_of_points(list(named), resolution)
    return pa.array(found, pa.list_(pa.string()))


def _cells_of_points(points: "Sequence[tuple[float | None, float | None]]", resolution: int) -> list[list[str]]:
    """Returns the cell of each point, looked up once for all rows of a place."""
    import h3

    known: dict[tuple[float | None, float | None], list[str]] = {
        (longitude, latitude): [h3.latlng_to_cell(latitude, longitude, resolution)]
        for longitude, latitude in set(points)
        if longitude is not None and latitude is not None
    }
    return [known.get(point, []) for point in points]


def _checked_cell(value: str | None, upstream: Upstream, resolution: int) -> list[str]:
    """A cell of another resolution is refused: larger ones do not contain smaller ones exactly."""
    import h3

    if value is None:
        return []
    if not h3.is_valid_cell(value) or h3.get_resolution(value) != resolution:
        raise InputUnreadable(
            f"{upstream.dataset}: {upstream.cells.cell!r} must have H3 cells of resolution {resolution}, as key.h3_res"
        )
    return [value]

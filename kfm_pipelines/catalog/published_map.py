"""Draws the newest Item of each dataset, a panel each, from what readers can see: Items and the files they name."""

import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.areas import load_area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.rasters import Picture
from kfm_pipelines.parquet.geoparquet import read_geo_columns
from kfm_pipelines.services import Services
from kfm_pipelines.state.revisions import newest_keys
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from shapely import Geometry

COLUMNS, PANEL_INCHES = 3, (4.4, 2.5)
LARGEST_SIDE = 600  # pixels that are read of a raster
MOST_SHAPES = 20_000
LATITUDE_STRETCH = 1.28  # a degree of latitude is longer by that in Kansas
FILL, EDGE, INK, LAND = "#4f7cac", "#274060", "#222222", "#f2f1ec"


@dataclass(frozen=True, slots=True)
class Panel:
    """What one Item shows, and the box around it."""

    title: str
    outline: "Geometry"
    box: tuple[float, float, float, float]
    draw: "Callable[[Axes], None]"


def draw_published_map(services: Services) -> tuple[bytes, list[str]]:
    """Returns a PNG, and the keys that it shows; a dataset without places has no panel."""
    newest = newest_keys(services.database)
    panels = {
        key: panel
        for name, dataset in services.datasets.items()
        if (key := newest.get(name)) and (panel := _panel(services, dataset, key))
    }
    return _draw(list(panels.values())), list(panels)


def _panel(services: Services, dataset: Dataset, key: str) -> Panel | None:
    path = Layout(dataset.pipeline).item(key)
    item = json.loads(services.store.read(path))
    if not item.get("bbox"):
        return None

    def asset(name: str) -> bytes:
        return services.store.read(posixpath.normpath(f"{posixpath.dirname(path)}/{item['assets'][name]['href']}"))

    if "raster" in item["assets"]:
        draw = _raster(asset("raster"), _picture(dataset))
    else:
        draw = _shapes(asset("data"), item["geometry"])
    outline = load_area(services.settings.resources, dataset.key.aoi).shape
    window = key.split(":")[3]
    return Panel(f"{dataset.dataset}, {window}", outline, _frame(item["bbox"], outline.bounds), draw)


def _picture(dataset: Dataset) -> Picture | None:
    declared = dataset.raster or dataset.scene
    return declared.picture if declared else None


def _frame(box: Sequence[float], area: Sequence[float]) -> tuple[float, float, float, float]:
    """Returns the area, or, if the data covers a small part of it, the box of the data with as much around it; in the
    form of a panel."""
    west, south, east, north = box if len(box) == 4 else (*box[:2], *box[3:5])
    margin = 2.0
    if east - west > (area[2] - area[0]) / 5:
        (west, south, east, north), margin = area, 1.08
    x, y = (west + east) / 2, (south + north) / 2
    form = LATITUDE_STRETCH * PANEL_INCHES[0] / PANEL_INCHES[1]
    wide = max(margin * (east - west), margin * (north - south) * form, 0.02)
    return x - wide / 2, y - wide / form / 2, x + wide / 2, y + wide / form / 2


def _raster(data: bytes, picture: Picture | None) -> "Callable[[Axes], None]":
    """Reads the first band in longitudes and latitudes, no finer than can be seen."""
    from rasterio.io import MemoryFile
    from rasterio.vrt import WarpedVRT

    with MemoryFile(data) as file, file.open() as source, WarpedVRT(source, crs="EPSG:4326") as flat:
        share = max(1.0, max(flat.width, flat.height) / LARGEST_SIDE)
        size = max(1, int(flat.height / share)), max(1, int(flat.width / share))
        values = flat.read(1, masked=True, out_shape=size)
        west, south, east, north = flat.bounds

    def draw(axes: "Axes") -> None:
        low, high, palette = (picture.min, picture.max, picture.palette) if picture else (None, None, "viridis")
        extent = (west, east, south, north)
        axes.imshow(values, extent=extent, cmap=palette, vmin=low, vmax=high, aspect="auto", zorder=2)

    return draw


def _shapes(data: bytes, footprint: Mapping[str, Any]) -> "Callable[[Axes], None]":
    """Reads H3 cells, or else the geometries, or else takes the footprint of the Item."""
    import pyarrow.parquet as pq
    import shapely

    table = pq.read_table(BytesIO(data))
    cells = next((name for name in ("h3_cell", "cell") if name in table.column_names), None)
    if cells is not None:
        shapes = _outlines(table.column(cells).drop_null().unique().to_pylist()[:MOST_SHAPES])
    elif (column := read_geo_columns(data)[0]) is not None:
        shapes = shapely.from_wkb(table.column(column).drop_null().to_numpy()[:MOST_SHAPES])
    else:
        shapes = shapely.from_geojson([json.dumps(footprint)])
    return lambda axes: _draw_shapes(axes, shapes)


def _outlines(cells: list[str]) -> "NDArray[Any]":
    import h3
    import numpy as np
    import shapely

    return np.array([shapely.Polygon([(east, north) for north, east in h3.cell_to_boundary(cell)]) for cell in cells])


def _draw_shapes(axes: "Axes", shapes: "NDArray[Any]") -> None:
    import shapely
    from matplotlib.collections import LineCollection, PolyCollection

    parts = shapely.get_parts(shapes)
    kinds = shapely.get_dimensions(parts)
    rings = [shapely.get_coordinates(part.exterior) for part in parts[kinds == 2]]
    axes.add_collection(PolyCollection(rings, facecolors=FILL, edgecolors=EDGE, linewidths=0.4, alpha=0.6, zorder=3))
    lines = [shapely.get_coordinates(part) for part in parts[kinds == 1]]
    axes.add_collection(LineCollection(lines, colors=EDGE, linewidths=0.8, zorder=3))
    points = shapely.get_coordinates(parts[kinds == 0])
    axes.scatter(points[:, 0], points[:, 1], s=9, color=FILL, edgecolors=EDGE, linewidths=0.3, zorder=4)


def _draw(panels: Sequence[Panel]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = max(1, -(-len(panels) // COLUMNS))
    size = COLUMNS * PANEL_INCHES[0], rows * PANEL_INCHES[1]
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    for number, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(rows, COLUMNS, number), panel)
    if not panels:
        figure.text(0.5, 0.5, "Nothing is published that has a place", ha="center", color=INK)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return file.getvalue()


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    west, south, east, north = panel.box
    _draw_area(axes, panel.outline)
    panel.draw(axes)
    axes.set(xlim=(west, east), ylim=(south, north), xticks=[], yticks=[], aspect=LATITUDE_STRETCH)
    axes.set_title(panel.title, fontsize=9, color=INK)
    left, _, right, _ = panel.outline.bounds
    if east - west < (right - left) / 2:
        overview = axes.inset_axes((0.72, 0.03, 0.26, 0.26), xticks=[], yticks=[], aspect=LATITUDE_STRETCH)
        _draw_area(overview, panel.outline)
        overview.plot((west + east) / 2, (south + north) / 2, marker="s", markersize=4, color="#b3261e")


def _draw_area(axes: "Axes", outline: "Geometry") -> None:
    import shapely

    for part in shapely.get_parts(outline):
        xs, ys = shapely.get_coordinates(part.exterior).T
        axes.fill(xs, ys, facecolor=LAND, edgecolor="#6b7683", linewidth=0.8, zorder=1)

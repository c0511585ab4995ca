"""How a dataset of rasters is read and made: its bands, its grid, and the table that describes its cells."""

import math
import struct
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from kfm_pipelines.declarations.quality import Fraction
from kfm_pipelines.declarations.tables import Column, Table
from kfm_pipelines.declarations.words import ColumnName, DeclarationModel, NonEmptyText

# How several objects of one key become one raster, pixel by pixel.
Composite = Literal["refuse", "first", "mean", "min", "max", "sum"]
Measure = Literal["count", "mean", "min", "max", "sum"]
MEASURES: tuple[Measure, ...] = ("count", "mean", "min", "max", "sum")
Positive = Annotated[float, Field(gt=0)]


class Band(DeclarationModel):
    name: ColumnName
    source: int | NonEmptyText = 1  # number of the band in the file, from 1, or name of a variable
    step: Annotated[int, Field(ge=1)] | None = None  # which of several times or levels with that name, from 1
    unit: NonEmptyText
    description: NonEmptyText
    # Numbers of the file, before any scale, that mean no measurement, besides its nodata.
    sentinels: list[float] = Field(default_factory=list)
    scale: float = 1.0  # what is published is value · scale + offset
    offset: float = 0.0
    min: float | None = None  # the range of values that can be true; others are refused
    max: float | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min must not be more than max")
        return self


class Grid(DeclarationModel):
    """The grid that every object of the dataset must have, before it is clipped."""

    crs: Annotated[str, StringConstraints(pattern=r"^EPSG:[0-9]{4,6}$")]
    west: float  # of the outer edge, in units of the reference system
    north: float
    pixel_width: Positive
    pixel_height: Positive
    columns: Annotated[int, Field(gt=0)]
    rows: Annotated[int, Field(gt=0)]


class Picture(DeclarationModel):
    """A small picture of one band: values from `min` to `max` in the colours of a palette of Matplotlib."""

    band: ColumnName | None = None  # the first by default
    min: float
    max: float
    palette: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$")] = "viridis"


class Raster(DeclarationModel):
    bands: Annotated[list[Band], Field(min_length=1, max_length=32)]
    grid: Grid | None = None
    composite: Composite = "refuse"
    nodata: float = -9999.0  # of the published raster, which has 32-bit floats
    picture: Picture | None = None
    nodata_share: Fraction = 0.99  # a raster with more of it is refused

    @model_validator(mode="after")
    def _check_nodata(self) -> Self:
        if not math.isfinite(self.nodata) or struct.unpack("f", struct.pack("f", self.nodata))[0] != self.nodata:
            raise ValueError("nodata must be a number that a 32-bit float holds exactly, such as -9999")
        return self

    @model_validator(mode="after")
    def _check_bands(self) -> Self:
        names = [band.name for band in self.bands]
        if len(set(names)) != len(names):
            raise ValueError("bands has the same name twice")
        if self.picture is not None and self.picture.band not in (None, *names):
            raise ValueError(f"picture.band: {self.picture.band!r} is not one of the bands {', '.join(names)}")
        return self


def raster_table(raster: Raster, h3_res: str) -> Table:
    """Returns the table that comes with a raster: its H3 cells, or the statistics of its bands."""
    return _statistics_table() if h3_res == "none" else cells_table(raster.bands, h3_res)


def cells_table(bands: list[Band], h3_res: str) -> Table:
    centre, cell = "Centre of the cell", f"H3 cell of resolution {h3_res}"
    columns = [
        Column(name="h3_cell", type="string", nullable=False, holds="place", description=cell),
        Column(name="longitude", type="float64", nullable=False, unit="deg", description=centre),
        Column(name="latitude", type="float64", nullable=False, unit="deg", description=centre),
        *(_measure_column(band, measure) for band in bands for measure in MEASURES),
        Column(name="geometry", type="geometry", nullable=False, derived="point", description=centre),
    ]
    return Table(
        primary_key=["h3_cell"],
        longitude_column="longitude",
        latitude_column="latitude",
        geometry_column="geometry",
        columns=columns,
    )


def _measure_column(band: Band, measure: Measure) -> Column:
    name, is_count = f"{band.name}_{measure}", measure == "count"
    description = "Pixels with a value, by the share of each in the cell"
    if not is_count:
        description = f"{measure.capitalize()}: {band.description}"
    unit = None if is_count else band.unit
    return Column(name=name, type="float64", nullable=not is_count, unit=unit, description=description)


def _statistics_table() -> Table:
    columns = [
        Column(name="band", type="string", nullable=False, description="Name of the band"),
        Column(name="unit", type="string", nullable=False, description="Unit of its values"),
        Column(name="valid_pixels", type="int64", nullable=False, description="Pixels with a value"),
        Column(name="nodata_pixels", type="int64", nullable=False, description="Pixels without one"),
        Column(name="min", type="float64", nullable=True, description="Least value"),
        Column(name="max", type="float64", nullable=True, description="Largest value"),
        Column(name="mean", type="float64", nullable=True, description="Mean of the values"),
        Column(name="stddev", type="float64", nullable=True, description="Their standard deviation"),
    ]
    return Table(primary_key=["band"], columns=columns)

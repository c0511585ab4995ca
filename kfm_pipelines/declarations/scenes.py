"""How scenes are described that stay where their provider keeps them."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations.rasters import Band, Picture, Raster, cells_table
from kfm_pipelines.declarations.tables import Column, Table
from kfm_pipelines.declarations.words import DeclarationModel

SceneProduct = Literal["landsat-c2-l2", "sentinel-1-grd", "sentinel-2-l1c", "sentinel-2-l2a"]
# How objects end that describe a scene. Where there are two forms a folder may have either, and a provider who removes
# a product removes both.
_ESSENTIAL: Mapping[SceneProduct, tuple[str, ...]] = {
    "landsat-c2-l2": ("_MTL.json", "_MTL.xml"),
    "sentinel-1-grd": ("/productInfo.json",),
    "sentinel-2-l1c": ("/tileInfo.json",),
    "sentinel-2-l2a": ("/tileInfo.json",),
}


class Scene(DeclarationModel):
    product: SceneProduct  # decides which metadata and bands are read
    cloud_cover: Annotated[float, Field(ge=0, le=100)] = 100.0  # a cloudier scene makes the key red
    derive: Literal["ndvi"] | None = None  # over the AOI, as a raster and H3 cells
    picture: Picture | None = None  # of what is derived

    @model_validator(mode="after")
    def _check_derived(self) -> Self:
        if self.derive is not None and self.product != "landsat-c2-l2":
            raise ValueError(f"derive: {self.derive} is made of landsat-c2-l2 only")
        if self.picture is not None and self.derive is None:
            raise ValueError("picture needs derive; scenes have a picture of their own")
        return self

    def is_essential(self, object_key: str) -> bool:
        return object_key.endswith(_ESSENTIAL[self.product])


NDVI = Band(name="ndvi", unit="1", description="Normalised difference vegetation index", min=-1.0, max=1.0)


def index_raster(scene: Scene) -> Raster | None:
    """Returns the declaration that follows for what is derived. A scene under clouds may be without any value."""
    return Raster(bands=[NDVI], picture=scene.picture, nodata_share=1.0) if scene.derive else None


def scene_table(scene: Scene, h3_res: str) -> Table:
    """Returns the table that comes with scenes: the H3 cells of what is derived, or the scenes."""
    if scene.derive is not None and h3_res != "none":
        return cells_table([NDVI], h3_res)
    clouds = "Share of the scene under clouds"
    columns = [
        Column(name="scene_id", type="string", nullable=False, description="Name that the provider gives the scene"),
        Column(name="platform", type="string", nullable=False, description="Satellite"),
        Column(name="acquired_at", type="timestamp", nullable=False, description="Time of acquisition"),
        Column(name="cloud_cover", type="float64", nullable=True, unit="%", description=clouds),
        Column(name="sun_azimuth", type="float64", nullable=True, unit="deg", description="Azimuth of the sun"),
        Column(name="sun_elevation", type="float64", nullable=True, unit="deg", description="Elevation of the sun"),
        Column(name="epsg", type="int64", nullable=True, description="Reference system of its bands"),
        Column(name="href", type="string", nullable=False, description="Where the provider keeps it"),
        Column(name="geometry", type="geometry", nullable=False, description="Footprint (WGS 84)"),
    ]
    return Table(primary_key=["scene_id"], time_column="acquired_at", geometry_column="geometry", columns=columns)

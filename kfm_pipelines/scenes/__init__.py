"""Scenes of satellites as their providers describe them: which objects of a folder are read, and what is in them."""

from collections.abc import Callable, Mapping

from kfm_pipelines.declarations.scenes import SceneProduct
from kfm_pipelines.scenes.facts import FolderObject, SceneFacts
from kfm_pipelines.scenes.landsat import landsat_bands, landsat_objects, read_landsat_scene
from kfm_pipelines.scenes.sentinel1 import read_sentinel1_scene, sentinel1_objects
from kfm_pipelines.scenes.sentinel2 import read_sentinel2_tile, sentinel2_objects

__all__ = ["FolderObject", "SceneFacts", "bands_to_derive", "objects_to_read", "read_scene"]

# From the address of a folder, which ends in a slash, and the objects of it by name.
_Read = Callable[[SceneProduct, str, Mapping[str, bytes]], SceneFacts]
_PRODUCTS: Mapping[SceneProduct, tuple[Callable[[str], tuple[FolderObject, ...]], _Read]] = {
    "landsat-c2-l2": (landsat_objects, read_landsat_scene),
    "sentinel-1-grd": (sentinel1_objects, read_sentinel1_scene),
    "sentinel-2-l1c": (sentinel2_objects, read_sentinel2_tile),
    "sentinel-2-l2a": (sentinel2_objects, read_sentinel2_tile),
}


def objects_to_read(product: SceneProduct, folder: str) -> tuple[FolderObject, ...]:
    """Returns the objects that describe a scene."""
    find, _ = _PRODUCTS[product]
    return find(folder)


def bands_to_derive(folder: str) -> tuple[str, ...]:
    """Returns the names of the red and near infrared bands of a Landsat scene and of the quality of its pixels."""
    return landsat_bands(folder)


def read_scene(product: SceneProduct, folder: str, objects: Mapping[str, bytes]) -> SceneFacts:
    """Raises InputUnreadable if the objects do not describe a scene, or not the one that the folder is named after."""
    _, read = _PRODUCTS[product]
    return read(product, folder, objects)

"""Describes scenes that stay where their provider keeps them: a row for each, and what its Item says and links.

Scenes that do not touch the area are left out and counted. Only metadata and the small picture are copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfm_pipelines.data_files import Attachments, DataFile
from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.rasters import Raster
from kfm_pipelines.declarations.scenes import NDVI, Scene
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.scenes import FolderObject, SceneFacts, objects_to_read, read_scene
from kfm_pipelines.stages.compute.assemble import raster_files, raster_table
from kfm_pipelines.stages.compute.ndvi import vegetation_index
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.rows import arrange_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.stages.compute.process import LoadArea

OUTSIDE = "scene outside the area"
_JPEG = b"\xff\xd8\xff"

Folders = Mapping[str, Mapping[str, bytes]]  # objects by name, by folder


def process_scenes(dataset: Dataset, objects: Sequence[SourceObject], load_area: "LoadArea") -> Computed:
    """Pure. Raises InputUnreadable for metadata that cannot be right."""
    scene = _section(dataset)
    area, folders = load_area().shape, _by_folder(objects)
    found = [read_scene(scene.product, folder, members) for folder, members in folders.items()]
    inside = [one for one in found if one.touches(area)]
    inside.sort(key=lambda one: (one.acquired_at, one.scene_id))
    left_out = {OUTSIDE: len(found) - len(inside)} if len(inside) < len(found) else {}
    described = Computed(_table(inside, dataset), _attachments(inside, scene, folders), left_out)
    raster = dataset.published_raster
    return described if raster is None else _with_index(described, inside, dataset, raster, folders, load_area())


def _with_index(
    described: Computed,
    scenes: Sequence[SceneFacts],
    dataset: Dataset,
    raster: Raster,
    folders: Folders,
    area: Area,
) -> Computed:
    """Adds the raster of the index and its picture, and puts its H3 cells in place of the scene where the key has a
    resolution. A scene that is all clouds has a raster without a value, and no cells."""
    if not scenes:
        return described
    if len(scenes) > 1:
        names = f"{scenes[0].scene_id} and {scenes[1].scene_id}"
        raise InputUnreadable(f"{names} are in one key; an index is of one scene: declare key.fold_by")
    pixels = vegetation_index(scenes[0].href, folders[scenes[0].href], dataset.input, area)
    beside = described.attachments
    files = (*beside.files, *raster_files(pixels, raster, f"{NDVI.description}, {scenes[0].scene_id}"))
    table = described.table if dataset.key.h3_res == "none" else raster_table(pixels, raster, dataset)
    return Computed(table, replace(beside, files=files), described.left_out)


def _section(dataset: Dataset) -> Scene:
    if dataset.scene is None:
        raise InputUnreadable(f"{dataset.dataset} declares no section scene")
    return dataset.scene


def _by_folder(objects: Sequence[SourceObject]) -> Folders:
    """Returns the objects of each scene. All of them are directly in its folder."""
    folders: dict[str, dict[str, bytes]] = {}
    for one in sorted(objects, key=lambda source: source.asset_uri):
        folder, slash, name = one.asset_uri.rpartition("/")
        folders.setdefault(f"{folder}{slash}", {})[name] = one.data
    return folders


def _table(scenes: Sequence[SceneFacts], dataset: Dataset) -> "pa.Table":
    """Returns a row for each scene, or none where the table is of H3 cells."""
    import pyarrow as pa
    import shapely

    if dataset.table.primary_key != ["scene_id"]:
        return declared_schema(dataset.table).empty_table()
    rows = [
        {
            **{name: getattr(one, name) for name in declared_schema(dataset.table).names if name != "geometry"},
            "geometry": shapely.to_wkb(one.footprint, byte_order=1),
        }
        for one in scenes
    ]
    ordered, _ = arrange_rows(pa.Table.from_pylist(rows, schema=declared_schema(dataset.table)), dataset.table)
    return ordered


def _attachments(scenes: Sequence[SceneFacts], scene: Scene, folders: Folders) -> Attachments:
    """Names of assets are those of the scene, or begin with its name where the key has several."""
    files: list[DataFile] = []
    remote: dict[str, Mapping[str, Any]] = {}
    for one in scenes:
        start = f"{one.scene_id}-" if len(scenes) > 1 else ""
        files += _files(one, scene, folders[one.href], start)
        remote |= {f"{start}{name}": asset for name, asset in one.assets.items()}
    return Attachments(tuple(files), _properties(scenes), remote)


def _properties(scenes: Sequence[SceneFacts]) -> dict[str, Any]:
    """Returns what the Item says of its scene; of several scenes only what they have in common."""
    if len(scenes) != 1:
        sensors = [one.sensor for one in scenes]
        first = sensors[0] if sensors else {}
        return {name: value for name, value in first.items() if all(one.get(name) == value for one in sensors)}
    [one] = scenes
    measured = {
        "eo:cloud_cover": one.cloud_cover,
        "view:sun_azimuth": one.sun_azimuth,
        "view:sun_elevation": one.sun_elevation,
    }
    known = {name: value for name, value in measured.items() if value is not None}
    return {**one.sensor, **known, **one.properties}


def _files(one: SceneFacts, scene: Scene, members: Mapping[str, bytes], start: str) -> Iterator[DataFile]:
    for described in _described_objects(scene, one.href):
        if described.name not in members:
            continue
        data = members[described.name]
        if described.media_type == "image/jpeg" and not data.startswith(_JPEG):
            raise InputUnreadable(f"{one.href}{described.name} must be a JPEG picture")
        # The name belongs to the picture of the index, if there is one.
        asset = "scene_thumbnail" if scene.derive and described.asset == "thumbnail" else described.asset
        yield DataFile(
            name=f"{start}{asset}",
            suffix=described.suffix,
            media_type=described.media_type,
            title=described.title,
            roles=described.roles,
            data=data,
        )


def _described_objects(scene: Scene, folder: str) -> Iterator[FolderObject]:
    for wanted in objects_to_read(scene.product, folder):
        yield wanted
        if wanted.instead is not None:
            yield wanted.instead

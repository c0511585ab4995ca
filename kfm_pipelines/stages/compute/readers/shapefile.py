"""Reads a zipped Shapefile. Only the files of one layer are unpacked, and only those reach GDAL."""

import io
import zipfile
import zlib
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Limits
from kfm_pipelines.declarations.vectors import Vector
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.stages.compute.readers.features import read_layer, unreadable, with_systems

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "a zipped Shapefile"
_REQUIRED = (".shp", ".shx", ".dbf")
_SUFFIXES = (*_REQUIRED, ".prj", ".cpg")
_ENCRYPTED = 0x1
# Of others Python unpacks as much as there is at once.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_AT_ONCE = 1 << 20
_SHX_HEADER, _SHX_RECORD = 100, 8
_DBF_HEADER, _DBF_FIELD = 33, 32


def read_shapefile(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    limits, wanted = dataset.input.limits, (dataset.vector or Vector()).layer
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members_of_layer(archive, name, wanted)
            limits.refuse(name, unpacked_bytes=sum(member.file_size for member in members.values()))
            files = _unpack(archive, members, name, limits)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError):
        raise unreadable(name, KIND) from None
    _check_headers(files, name, limits)
    table, system = read_layer(_pack(files), name, dataset, KIND)
    return with_systems(table, [system], dataset)


def _members_of_layer(archive: zipfile.ZipFile, name: str, wanted: str | None) -> dict[str, zipfile.ZipInfo]:
    """Returns the files of the layer by suffix."""
    paths = {member.filename: PurePosixPath(member.filename) for member in archive.infolist()}
    if any(_leaves_the_archive(path) for path in paths.values()):
        raise InputUnreadable(f"{name} has a file whose name leads out of the archive")
    layers = [path.with_suffix("") for path in paths.values() if path.suffix.lower() == ".shp" and _is_meant(path)]
    layer = _choose_layer([one for one in layers if wanted in (None, one.name)], name, wanted)
    members = [
        member
        for member in archive.infolist()
        if paths[member.filename].with_suffix("") == layer and paths[member.filename].suffix.lower() in _SUFFIXES
    ]
    suffixes = Counter(paths[member.filename].suffix.lower() for member in members)
    if missing := [suffix for suffix in _REQUIRED if suffix not in suffixes]:
        raise InputUnreadable(f"{name} has a .shp file without the {missing[0]} file of the same name")
    if max(suffixes.values()) > 1:
        raise InputUnreadable(f"{name} has a file of its layer more than once")
    if any(member.flag_bits & _ENCRYPTED for member in members):
        raise InputUnreadable(f"{name} is encrypted")
    if any(member.compress_type not in _METHODS for member in members):
        raise InputUnreadable(f"{name} is packed by another method than deflate")
    return {paths[member.filename].suffix.lower(): member for member in members}


def _leaves_the_archive(path: PurePosixPath) -> bool:
    return path.is_absolute() or ".." in path.parts or "\\" in str(path) or ":" in str(path)


def _is_meant(path: PurePosixPath) -> bool:
    """Whether it is not a shadow that macOS adds for each file."""
    return "__MACOSX" not in path.parts and not path.name.startswith("._")


def _choose_layer(layers: list[PurePosixPath], name: str, wanted: str | None) -> PurePosixPath:
    if not layers:
        what = "no .shp file" if wanted is None else f"no layer {wanted!r}, which vector.layer names"
        raise InputUnreadable(f"{name} has {what}")
    if len(layers) > 1:
        raise InputUnreadable(f"{name} has {len(layers)} layers; vector.layer must name one of them")
    return layers[0]


def _unpack(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str, limits: Limits
) -> dict[str, bytes]:
    """Counts what is unpacked, because the directory of an archive can lie about it."""
    files: dict[str, bytes] = {}
    size = 0
    for suffix, member in members.items():
        parts: list[bytes] = []
        with archive.open(member) as file:
            while part := file.read(_AT_ONCE):
                parts.append(part)
                size += len(part)
                limits.refuse(name, unpacked_bytes=size)
        files[suffix] = b"".join(parts)
    return files


def _check_headers(files: dict[str, bytes], name: str, limits: Limits) -> None:
    if not files.get(".prj", b"").strip():
        raise InputUnreadable(f"{name} has no .prj file, which states the reference system of a Shapefile")
    table = files[".dbf"]
    rows = max((len(files[".shx"]) - _SHX_HEADER) // _SHX_RECORD, int.from_bytes(table[4:8], "little"))
    columns = (int.from_bytes(table[8:10], "little") - _DBF_HEADER) // _DBF_FIELD
    limits.refuse(name, rows=rows, columns=columns)


def _pack(files: dict[str, bytes]) -> bytes:
    """Returns an archive of these files alone, not compressed, for GDAL to read."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for suffix, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"layer{suffix}"), content)
    return packed.getvalue()

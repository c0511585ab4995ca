"""What is packed inside bytes: compressed streams, archives, pictures with text in them. Encodings are in
`leak_encodings`."""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator

UNPACKED_LIMIT = 1 << 28
PNG = b"\x89PNG\r\n\x1a\n"


def parts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Everything packed directly in `data`, by what it was packed in."""
    unpack: dict[bytes, tuple[str, Callable[[memoryview], Iterator[bytes]]]] = {
        b"\x1f\x8b\x08": ("gzip", _gunzipped),
        b"\x28\xb5\x2f\xfd": ("zstd", _unzstd),
        b"PK\x03\x04": ("zip", _unzipped),
        PNG: ("png", _png_texts),
    }
    for magic, (name, unpacked) in unpack.items():
        start = data.find(magic)
        while start >= 0:
            for part in unpacked(memoryview(data)[start:]):
                yield f"{name}@{start}", part
            # All members of an archive are read from its beginning.
            start = -1 if name == "zip" else data.find(magic, start + 1)


def _gunzipped(data: memoryview) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(31)
    try:
        yield unpacker.decompress(data, UNPACKED_LIMIT)
    except zlib.error:
        return


def _unzstd(data: memoryview) -> Iterator[bytes]:
    """One frame: Arrow gives nothing at all of a stream that goes on with something else."""
    import pyarrow as pa

    frame = data[: _zstd_frame_length(data)]
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(frame)), "zstd") as stream:
            yield stream.read(UNPACKED_LIMIT)
    except (OSError, pa.ArrowException):
        return


def _zstd_frame_length(data: memoryview) -> int:
    """By the headers of the frame and of its blocks (RFC 8878)."""
    descriptor = data[4] if len(data) > 4 else 0
    single = descriptor >> 5 & 1
    size_of_size = (single, 2, 4, 8)[descriptor >> 6]
    place = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + size_of_size
    last = False
    while not last and place + 3 <= len(data):
        header = int.from_bytes(data[place : place + 3], "little")
        last, repeats, size = bool(header & 1), header >> 1 & 3 == 1, header >> 3
        place += 3 + (1 if repeats else size)
    return place + 4 * (descriptor >> 2 & 1)


def _unzipped(data: memoryview) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                yield member.filename.encode()
                with archive.open(member) as stream:
                    yield stream.read(UNPACKED_LIMIT)
    except (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError, ValueError):
        return


def _png_texts(data: memoryview) -> Iterator[bytes]:
    place = len(PNG)
    while place + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        content = bytes(data[place + 8 : place + 8 + length])
        if kind in (b"zTXt", b"iTXt"):
            yield from _inflated(content)
        if kind == b"IEND":
            return
        place += length + 12


def _inflated(content: bytes) -> Iterator[bytes]:
    """The compressed text begins somewhere after the keyword."""
    for start in (found.start() for found in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", content)):
        try:
            yield zlib.decompressobj().decompress(content[start:], UNPACKED_LIMIT)
        except zlib.error:
            continue

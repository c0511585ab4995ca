"""Refuses HDF5 files, which NetCDF 4 files are, that take data from other files.

The library of HDF5 would open these by their paths, wherever the file itself is: a dataset with external storage can
have /etc/passwd as its values. The places that name another file are found by their form in the bytes.
"""

import re
from collections.abc import Iterator
from itertools import product

from kfm_pipelines.errors import InputUnreadable

MAGIC = b"\x89HDF\r\n\x1a\n"
_WIDTHS = (2, 4, 8, 16)  # of addresses and lengths, which a file chooses
# A message of an object's header: type, size and flags, in the older form and in the newer one.
_EXTERNAL_FILES = re.compile(
    rb"\x07(?:\x00(?P<size_1>..).\x00\x00\x00|(?P<size_2>..).(?:..)??)\x01\x00\x00\x00(?P<slots>..)(?P<used>..)",
    re.DOTALL,
)
_VIRTUAL_LAYOUT = re.compile(
    rb"\x08(?:\x00[\x08\x10\x18]\x00.\x00\x00\x00|[\x08\x0a\x0e\x16]\x00.(?:..)??)[\x03-\x05]\x03", re.DOTALL
)
_EXTERNAL_LINK = re.compile(rb"\x01(?P<flags>[\x08-\x1f])\x40", re.DOTALL)
_PATHS = re.compile(rb"\x00[^\x00-\x1f]+\x00[^\x00-\x1f]+\x00")


def refuse_other_files(data: bytes, name: str) -> None:
    """Raises InputUnreadable if the file has external storage, a virtual dataset or a link into another file."""
    if MAGIC in data and any(any(found) for found in (_external_files(data), _virtual(data), _external_links(data))):
        raise InputUnreadable(f"{name} takes data from other files, which are not read; it must have all of its data")


def _external_files(data: bytes) -> Iterator[bool]:
    for found in _overlapping(_EXTERNAL_FILES, data):
        size = int.from_bytes(found["size_1"] or found["size_2"], "little")
        slots, used = (int.from_bytes(found[one], "little") for one in ("slots", "used"))
        sizes = {8 + address + 3 * length * slots for address, length in product(_WIDTHS, _WIDTHS)}
        if 0 < used <= slots and any(one <= size <= one + 7 for one in sizes):
            yield True


def _virtual(data: bytes) -> Iterator[bool]:
    return (True for _ in _overlapping(_VIRTUAL_LAYOUT, data))


def _external_links(data: bytes) -> Iterator[bool]:
    for found in _overlapping(_EXTERNAL_LINK, data):
        flags, place = found["flags"][0], found.end()
        place += (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
        width = 1 << (flags & 3)
        place += width + int.from_bytes(data[place : place + width], "little")
        length = int.from_bytes(data[place : place + 2], "little")
        if place < len(data) and _PATHS.fullmatch(data, place + 2, place + 2 + length):
            yield True


def _overlapping(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Yields matches that begin within others as well."""
    found = pattern.search(data)
    while found:
        yield found
        found = pattern.search(data, found.start() + 1)

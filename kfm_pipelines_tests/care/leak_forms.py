"""Every form in which a planted value can turn up in bytes, each as a needle to look for.

Belongs here: what a value looks like. Does not: finding needles (`leak_search`), or where to look (`leaks`).
"""

import base64
import hashlib
import html
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus

# Whether the bytes around a match allow it: (data, start, end).
Check = Callable[[bytes, int, int], bool]
GEOHASH = "0123456789bcdefghjkmnpqrstuvwxyz"
ZONES_BANDS = "CDEFGHJKLMNPQRSTUVWX"
NEAR_BYTES = 200


@dataclass(frozen=True, slots=True)
class Needle:
    """Bytes that give a canary away. `folded` ones are looked for in lower-cased data."""

    form: str
    data: bytes
    folded: bool = False
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """The place in metres of one map projection."""

    name: str
    easting: float
    northing: float


def needles_of_point(longitude: float, latitude: float) -> Iterator[Needle]:
    yield from _floats(longitude, latitude)
    for degrees in (longitude, latitude):
        yield from _decimals(degrees)
        yield from _exponents(degrees)
        yield from _sexagesimal(degrees)
    yield from _geohashes(longitude, latitude)
    yield from _cells(longitude, latitude)
    for grid in grids(longitude, latitude):
        yield from _metres(grid)
    yield from _military(longitude, latitude)


def needles_of_text(text: str) -> Iterator[Needle]:
    spellings = {text, text.lower(), text.upper(), text.replace(" ", "_"), text.replace(" ", "-")}
    for spelling in spellings:
        for form, data in _encoded(spelling):
            yield Needle(form, data.lower(), folded=True)


def _encoded(text: str) -> Iterator[tuple[str, bytes]]:
    plain = text.encode()
    once = json.dumps(text)[1:-1]
    yield "text", plain
    yield "utf-16", text.encode("utf-16-le")
    yield "utf-16", text.encode("utf-16-be")
    yield "hex", plain.hex().encode()
    for escaped in (once, json.dumps(once)[1:-1], html.escape(text)):
        yield "escaped", escaped.encode()
    for quoted in (quote(text), quote(text, safe=""), quote_plus(text), quote(quote(text))):
        yield "url", quoted.encode()
    for shift in range(3):
        for letters in (base64.b64encode, base64.urlsafe_b64encode):
            yield "base64", _base64_middle(plain, shift, letters)
    # Whoever has a list of candidates finds the one with this digest at once.
    for name in ("md5", "sha1", "sha256"):
        yield "digest", hashlib.new(name, plain).hexdigest().encode()


def _base64_middle(plain: bytes, shift: int, letters: Callable[[bytes], bytes]) -> bytes:
    """The letters that depend on the text alone, when it begins `shift` bytes into a group of three."""
    whole = letters(bytes(shift) + plain)
    return whole[math.ceil(shift * 8 / 6) : (shift + len(plain)) * 8 // 6]


def _floats(longitude: float, latitude: float) -> Iterator[Needle]:
    for order in "<>":
        for degrees in (longitude, latitude):
            for value in {degrees, math.radians(degrees), *_shortened(degrees)}:
                yield Needle("float64", struct.pack(f"{order}d", value))
        x, y = (struct.pack(f"{order}f", degrees) for degrees in (longitude, latitude))
        yield Needle("float32", x, check=_is_float32(order, y))
        yield Needle("float32", y, check=_is_float32(order, x))
        yield Needle("wkb", struct.pack(f"{order}2d", longitude, latitude))
        yield Needle("wkb", struct.pack(f"{order}2d", latitude, longitude))


def _is_float32(order: str, partner: bytes) -> Check:
    """Four bytes turn up by chance in a few megabytes of anything. They count next to their partner, among other
    degrees, or when there is hardly anything else."""

    def degrees(data: bytes, start: int) -> bool:
        if start < 0 or start + 4 > len(data):
            return False
        [value] = struct.unpack_from(f"{order}f", data, start)
        return bool(1 <= abs(value) <= 180)

    def check(data: bytes, start: int, end: int) -> bool:
        if len(data) <= 16 or partner in data[max(0, start - 64) : end + 64]:
            return True
        return any(degrees(data, start + step) and degrees(data, start + 2 * step) for step in (-4, 4))

    return check


def _shortened(degrees: float) -> Iterator[float]:
    for digits in range(3, 9):
        yield round(degrees, digits)
        yield math.trunc(degrees * 10**digits) / 10**digits


def _decimals(degrees: float) -> Iterator[Needle]:
    """Up to five digits have to be these digits; from six on whatever follows is noise."""
    single = struct.unpack("<f", struct.pack("<f", degrees))[0]
    exact, near = set(), set()
    for value in (abs(degrees), abs(single)):
        for digits in (3, 4, 5):
            exact |= {_cut(value, digits), f"{value:.{digits}f}"}
        near |= {_cut(value + step, 6) for step in (-1e-6, 0, 1e-6)}
    for text in exact:
        yield Needle("decimal", text.encode(), folded=True, check=_is_whole_number)
        if len(text.partition(".")[2]) > 3:  # 38,123 is a count
            yield Needle("decimal", text.replace(".", ",").encode(), folded=True, check=_is_whole_number)
    for text in near:
        yield Needle("decimal", text.encode(), folded=True, check=_begins_number)
        yield Needle("decimal", text.replace(".", ",").encode(), folded=True, check=_begins_number)


def _cut(value: float, digits: int) -> str:
    whole, _, fraction = f"{value:.12f}".partition(".")
    return f"{whole}.{fraction[:digits]}"


def _exponents(degrees: float) -> Iterator[Needle]:
    for digits in range(3, 9):
        mantissa, _, power = f"{abs(degrees):.{digits}e}".partition("e")
        for exponent in {power, power.replace("+0", "+"), power.replace("+0", ""), power.replace("+", "")}:
            yield Needle("exponent", f"{mantissa}e{exponent}".encode(), folded=True, check=_is_whole_number)


def _begins_number(data: bytes, start: int, end: int) -> bool:
    """Not inside a longer number, and not the seconds of a time."""
    before = data[max(0, start - 16) : start]
    return not re.search(rb"[1-9.]$|[1-9.][0-9]+$|[0-9]:0?$", before)


def _is_whole_number(data: bytes, start: int, end: int) -> bool:
    return _begins_number(data, start, end) and not re.match(rb"0*(?:[1-9]|[.][0-9])", data[end : end + 24])


def _sexagesimal(degrees: float) -> Iterator[Needle]:
    whole = int(abs(degrees))
    for seconds in {int(abs(degrees) * 3600), round(abs(degrees) * 3600)}:
        minute, second = divmod(seconds - whole * 3600, 60)
        for first in ("°", "° ", "º", "º ", "d", "d ", "deg ", " deg ", ":", " ", "-", "\\u00b0", "&deg;"):
            for middle in ("'", "' ", "′", "′ ", "m", "m ", "min ", ":", " ", "-", "\\u2032"):
                for text in {
                    f"{whole}{first}{minute:02d}{middle}{second:02d}",
                    f"{whole}{first}{minute}{middle}{second}",
                }:
                    yield Needle("degrees", text.encode(), folded=True, check=_is_integer)
        for text in (f"{whole}{minute:02d}{second:02d}", f"{whole:03d}{minute:02d}{second:02d}"):
            yield Needle("degrees", text.encode(), folded=True, check=_has_hemisphere)
    for minutes in {_cut((abs(degrees) - whole) * 60, 3), f"{(abs(degrees) - whole) * 60:.3f}"}:
        for first in ("°", "° ", "d", " ", "\\u00b0", "&deg;"):
            for padded in {minutes, minutes.zfill(6)}:
                yield Needle("degrees", f"{whole}{first}{padded}".encode(), folded=True, check=_begins_number)


def _is_integer(data: bytes, start: int, end: int) -> bool:
    return not data[max(0, start - 1) : start].isdigit() and not data[end : end + 1].isdigit()


def _has_hemisphere(data: bytes, start: int, end: int) -> bool:
    around = data[max(0, start - 2) : start] + b"|" + data[end : end + 8]
    return bool(re.match(rb"[^0-9]*[nsew] ?\||[^0-9]*\|(?:[.][0-9]*)? ?[nsew]", around)) and _is_integer(
        data, start, end
    )


def _geohashes(longitude: float, latitude: float) -> Iterator[Needle]:
    whole = geohash(longitude, latitude)
    for length in range(6, len(whole) + 1):
        yield Needle("geohash", whole[:length].encode(), folded=True, check=_is_word)


def _is_word(data: bytes, start: int, end: int) -> bool:
    return not data[max(0, start - 1) : start].isalnum() and not data[end : end + 1].isalnum()


def geohash(longitude: float, latitude: float, length: int = 12) -> str:
    ranges = [[-180.0, 180.0], [-90.0, 90.0]]
    number = 0
    for bit in range(length * 5):
        span, value = ranges[bit % 2], (longitude, latitude)[bit % 2]
        middle = sum(span) / 2
        number = number * 2 + (value >= middle)
        span[value < middle] = middle
    return "".join(GEOHASH[number >> 5 * place & 31] for place in reversed(range(length)))


def _cells(longitude: float, latitude: float) -> Iterator[Needle]:
    import h3

    for resolution in range(8, 16):
        cell = h3.latlng_to_cell(latitude, longitude, resolution)
        number = h3.str_to_int(cell)
        yield Needle("h3", cell.encode(), folded=True)
        yield Needle("h3", str(number).encode(), folded=True, check=_is_integer)
        yield Needle("h3", struct.pack("<Q", number))
        yield Needle("h3", struct.pack(">Q", number))


@cache
def _projection(code: str) -> Any:
    from pyproj import Transformer

    return Transformer.from_crs("EPSG:4326", code, always_xy=True)


def grids(longitude: float, latitude: float) -> list[Grid]:
    """UTM in its own zone and the two beside it, because a state keeps to one; and the projection of web maps."""
    zone, half = utm_zone(longitude), 326 if latitude >= 0 else 327
    codes = {f"utm {near}": f"EPSG:{half}{near:02d}" for near in (zone - 1, zone, zone + 1) if 1 <= near <= 60}
    codes["mercator"] = "EPSG:3857"
    return [Grid(name, *_projection(code).transform(longitude, latitude)) for name, code in codes.items()]


def utm_zone(longitude: float) -> int:
    return int((longitude + 180) // 6) + 1


def _metres(grid: Grid) -> Iterator[Needle]:
    """Integers of metres are common, so both have to be there."""
    northings = b"|".join(str(abs(int(value))).encode() for value in (grid.northing, round(grid.northing)))
    partner = re.compile(rb"(?<![0-9.])(?:" + northings + rb")(?![0-9])")

    def check(data: bytes, start: int, end: int) -> bool:
        around = data[max(0, start - NEAR_BYTES) : end + NEAR_BYTES]
        return _is_integer(data, start, end) and partner.search(around) is not None

    form = "utm" if grid.name.startswith("utm") else grid.name
    for easting in {abs(int(grid.easting)), abs(round(grid.easting))}:
        yield Needle(form, str(easting).encode(), folded=True, check=check)


def _military(longitude: float, latitude: float) -> Iterator[Needle]:
    zone, band, square, easting, northing = military_grid(longitude, latitude)
    for digits in (3, 4, 5):
        step = 10 ** (5 - digits)
        for x in {int(easting / step), round(easting / step)}:
            for y in {int(northing / step), round(northing / step)}:
                numbers = (f"{x:0{digits}d}{y:0{digits}d}", f"{x:0{digits}d} {y:0{digits}d}")
                for head in (f"{zone}{band}{square}", f"{zone}{band} {square}", f"{zone} {band} {square}"):
                    for number in numbers:
                        for text in (f"{head}{number}", f"{head} {number}"):
                            yield Needle("mgrs", text.lower().encode(), folded=True, check=_is_integer)


def military_grid(longitude: float, latitude: float) -> tuple[int, str, str, float, float]:
    """Zone, band, 100 km square, and metres within it."""
    zone = utm_zone(longitude)
    [grid] = [grid for grid in grids(longitude, latitude) if grid.name == f"utm {zone}"]
    band = ZONES_BANDS[min(int((latitude + 80) // 8), 19)]
    columns = ("STUVWXYZ", "ABCDEFGH", "JKLMNPQR")[zone % 3]
    rows = "ABCDEFGHJKLMNPQRSTUV"
    row = int(grid.northing // 100_000) + (5 if zone % 2 == 0 else 0)
    square = columns[int(grid.easting // 100_000) - 1] + rows[row % 20]
    return zone, band, square, grid.easting % 100_000, grid.northing % 100_000

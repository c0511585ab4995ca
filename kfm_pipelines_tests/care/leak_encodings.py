"""What is written inside bytes in other letters: base64, hexadecimal, and escapes within escapes.

Everything found in one encoding comes out as one piece, because there are many and most are a few bytes.
"""

import binascii
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

BETWEEN = b"\x00\n\x00"
LINE = 60  # letters; base64 of more than that often comes in lines
_HEX_LETTERS = b"0123456789abcdefABCDEF"
_BASE64_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_USUAL = bytes.maketrans(b"-_", b"+/")
_ESCAPES = re.compile(rb"\\{2,}")


def decoded(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Everything encoded in `data`, by its encoding."""
    if b"\\\\" in data:  # JSON in JSON, or COPY of it
        yield "escapes", _ESCAPES.sub(rb"\\", data)
    yield "base64", BETWEEN.join(map(_from_base64, _base64_texts(data)))
    yield "hex", BETWEEN.join(binascii.unhexlify(data[a : b - (b - a) % 2]) for a, b in _runs(data, _HEX_LETTERS, 8))


def _from_base64(letters: bytes) -> bytes:
    usual = letters.translate(_USUAL)
    rest = len(usual) % 4  # one letter alone is none; two or three lack their padding
    return binascii.a2b_base64(usual[:-1] if rest == 1 else usual + b"=" * (-rest % 4))


def _base64_texts(data: bytes) -> Iterator[bytes]:
    """Runs of letters, with those that are lines of one text put together."""
    text, last = b"", 0
    for start, end in _runs(data, _BASE64_LETTERS, 16):
        begin = _next_line(data, last, start) if len(text) >= LINE else None
        if begin is None:
            yield text
            text = b""
        text += data[begin or start : end]
        last = end
    yield text


def _next_line(data: bytes, end: int, start: int) -> int | None:
    """Where the line that follows directly begins; an escaped newline has a letter of its own."""
    between = data[end:start] if start - end <= 2 else b""
    if between in (b"\n", b"\r\n"):
        return start
    return start + 1 if between == b"\\" and data[start : start + 1] == b"n" else None


def _runs(data: bytes, letters: bytes, least: int) -> list[tuple[int, int]]:
    """Where at least so many of these letters stand in a row, or fewer right after a whole line of them."""
    inside = np.zeros(len(data) + 2, bool)
    inside[1:-1] = _table(letters)[np.frombuffer(data, np.uint8)]
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, ends = edges[::2], edges[1::2]
    lengths = ends - starts
    keep = lengths >= least
    keep[1:] |= (lengths[:-1] >= LINE) & (starts[1:] - ends[:-1] <= 2)
    return list(zip(starts[keep].tolist(), ends[keep].tolist(), strict=True))


def _table(letters: bytes) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    table = np.zeros(256, bool)
    table[list(letters)] = True
    return table

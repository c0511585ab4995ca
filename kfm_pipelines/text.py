"""How a refusal shows a piece of somebody else's message: short, on one line, nothing a terminal would obey, no places.

Belongs here: only that. Every sentence in this package that repeats input goes through `quoted`.
"""

import re

WITHHELD = "(withheld)"

# How coordinates are written: degrees with three decimals or more. Seconds of a time come after hours and minutes.
_DEGREES = re.compile(r"(?<![\d.])(?<!\d\d:\d\d:)[-+]?\d{1,3}\.\d{3,}")


def without_places(text: str) -> str:
    """The text without what may be a coordinate: who refuses a message does not know yet whose place it speaks of."""
    return _DEGREES.sub(WITHHELD, text)


def printable(text: str) -> str:
    """The text with a space for everything a terminal would not print but do."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def storable(text: str) -> str:
    """The text as Postgres can keep it."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


__all__ = ["WITHHELD", "one_line", "printable", "quoted", "without_places"]

LONGEST = 80


def quoted(value: object) -> str:
    """The value as Python would write it, cut to a length that cannot leak a whole body into a log."""
    if isinstance(value, dict):
        return f"an object with {len(value)} fields"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return repr(without_places(value)) if len(value) <= LONGEST else f"{without_places(value[:LONGEST])!r}…"
    shown = without_places(repr(value))
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


def one_line(text: str, max_length: int) -> str:
    """Text for a log line, a table cell or a message attribute: nothing unprintable, nothing endless."""
    shown = printable(text)
    return shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"

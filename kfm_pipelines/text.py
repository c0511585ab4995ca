"""How a refusal shows a piece of somebody else's message: short, on one line, nothing a terminal would obey, no places.

Belongs here: only that. Every sentence in this package that repeats input goes through `quoted`.
"""

import re

WITHHELD = "(withheld)"

# How coordinates are written: degrees with three decimals or more. Seconds of a time come after hours and minutes.
_DEGREES = re.compile(r"(?<![\d.])(?<!\d\d:\d\d:)[-+]?\d{1,3}\.\d{3,}")


def redact_coordinates(text: str) -> str:
    """The text without what may be a coordinate: who refuses a message does not know yet whose place it speaks of."""
    return _DEGREES.sub(WITHHELD, text)


def make_printable(text: str) -> str:
    """The text with a space for everything a terminal would not print but do."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def make_storable(text: str) -> str:
    """The text as Postgres can keep it."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


__all__ = ["WITHHELD", "make_printable", "quote_value", "redact_coordinates", "truncate_line"]

MAX_QUOTED_LENGTH = 80


def quote_value(value: object) -> str:
    """The value as Python would write it, cut to a length that cannot leak a whole body into a log."""
    if isinstance(value, dict):
        return f"an object with {len(value)} fields"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return (
            repr(redact_coordinates(value))
            if len(value) <= MAX_QUOTED_LENGTH
            else f"{redact_coordinates(value[:MAX_QUOTED_LENGTH])!r}…"
        )
    shown = redact_coordinates(repr(value))
    return shown if len(shown) <= MAX_QUOTED_LENGTH else f"{shown[:MAX_QUOTED_LENGTH]}…"


def truncate_line(text: str, max_length: int) -> str:
    """Text for a log line, a table cell or a message attribute: nothing unprintable, nothing endless."""
    shown = make_printable(text)
    return shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"

"""Makes text from elsewhere safe to print, log, quote and store."""

import re

WITHHELD = "(withheld)"
MAX_QUOTED_LENGTH = 80

# Coordinates: degrees with three decimals or more. Seconds of a time are excluded by the hours and minutes before them.
_DEGREES = re.compile(r"(?<![\d.])(?<!\d\d:\d\d:)[-+]?\d{1,3}\.\d{3,}")


def redact_coordinates(text: str) -> str:
    """Replaces what may be a coordinate, because a refused message may be about a protected place."""
    return _DEGREES.sub(WITHHELD, text)


def make_printable(text: str) -> str:
    """Replaces control characters by spaces, so that a terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def make_storable(text: str) -> str:
    """Replaces the characters that Postgres cannot store."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def quote_value(value: object) -> str:
    """Returns the value's repr without coordinates, cut to a length that cannot leak a whole body into a log."""
    if isinstance(value, dict):
        return f"an object with {len(value)} field{'' if len(value) == 1 else 's'}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        quoted = repr(redact_coordinates(value[:MAX_QUOTED_LENGTH]))
        return quoted if len(value) <= MAX_QUOTED_LENGTH else f"{quoted}…"
    quoted = redact_coordinates(repr(value))
    return quoted if len(quoted) <= MAX_QUOTED_LENGTH else f"{quoted[:MAX_QUOTED_LENGTH]}…"


def truncate_line(text: str, max_length: int) -> str:
    """Returns printable text of at most `max_length` for a log line, a table cell or a message attribute."""
    line = make_printable(text)
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"

"""Makes text from elsewhere safe to print, log, quote and store."""

import re
from datetime import UTC, datetime

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


_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,30})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_LOCAL = re.compile(r"[0-9-]{10}[Tt][0-9:]{8}(?:\.[0-9]{1,30})?")


def read_timestamp(text: str) -> datetime:
    """Returns the instant in UTC, to the microsecond. Raises ValueError when the text is not one."""
    if not _RFC_3339.fullmatch(text):
        raise ValueError(f"{quote_value(text)} is not an RFC 3339 timestamp with an offset, like 2025-12-04T03:14:15Z")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{quote_value(text)} is not a valid time: {error}") from None


def read_utc(text: str) -> datetime:
    """Like `read_timestamp`, for feeds that leave out the offset and mean UTC."""
    return read_timestamp(f"{text}Z" if _LOCAL.fullmatch(text) else text)


def write_timestamp(instant: datetime) -> str:
    """Formats the instant like S3: UTC, milliseconds, Z."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no offset")
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

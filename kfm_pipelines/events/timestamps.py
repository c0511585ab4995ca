"""Strict RFC 3339 timestamps in UTC. `fromisoformat` accepts more, and differs by version of Python."""

import re
from datetime import UTC, datetime

from kfm_pipelines.text import quote_value

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

"""RFC 3339 timestamps, strictly: a date, a time and an offset, or a refusal. The result is always UTC.

Python's own `fromisoformat` also takes week dates, missing offsets and commas, and more with every release; a
contract must not depend on that, so the form is checked first.
"""

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
    """The instant in UTC, to the microsecond; ValueError with one sentence when the text names none."""
    if not _RFC_3339.fullmatch(text):
        raise ValueError(f"{quote_value(text)} is not an RFC 3339 timestamp with an offset, like 2025-12-04T03:14:15Z")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{quote_value(text)} names no instant: {error}") from None


def read_utc(text: str) -> datetime:
    """For feeds that leave out the offset and mean UTC; with one, as `read_timestamp`."""
    return read_timestamp(f"{text}Z" if _LOCAL.fullmatch(text) else text)


def write_timestamp(instant: datetime) -> str:
    """The instant as S3 writes it: UTC, milliseconds, Z."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no offset, so it names no instant")
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

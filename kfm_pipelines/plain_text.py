"""Text of somebody else made fit to be shown: nothing a terminal would obey, no places.

Belongs here: only that, for whatever is below `events`. How a refusal quotes a message is in `events.quoting`.
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

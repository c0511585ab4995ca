"""How a refusal shows a piece of somebody else's message: short, on one line, nothing a terminal would obey, no places.

Belongs here: only that. Every sentence in this package that repeats input goes through `quoted`.
"""

from kfm_pipelines.plain_text import WITHHELD, printable, without_places

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


def one_line(text: str, longest: int) -> str:
    """Text for a log line, a table cell or a message attribute: nothing unprintable, nothing endless."""
    shown = printable(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"

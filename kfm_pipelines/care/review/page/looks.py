"""Sizes, colours and letters that all parts of a map share. Sizes are in CSS pixels."""

from dataclasses import dataclass

WIDTH = 384.0
LEFT, RIGHT, TOP, TICKS, ROW = 32.0, 10.0, 24.0, 16.0, 15.0
INK, MUTED, LINE, EDGE = "#1d2733", "#4b5866", "#d5dbe1", "#123a66"
FONT = "DejaVu Sans"  # comes with matplotlib, so it is the same on every machine


@dataclass(frozen=True)
class PointStyle:
    """How points of a class are drawn. A light colour has a dark rim and dark lines, or it would be lost on paper."""

    colour: str
    marker: str
    rim: str = "white"

    @property
    def line(self) -> str:
        return self.colour if self.rim == "white" else self.rim


# Shape as well as colour tells the classes apart.
_STYLES = {
    "open": PointStyle("#00805c", "s"),
    "generalised": PointStyle("#e69f00", "o", rim="#5e4100"),
    "restricted": PointStyle("#b8450a", "^"),
    "withheld": PointStyle("#5b2a86", "D"),
}
_OTHER_STYLES = (PointStyle(INK, "o"), *_STYLES.values())


def point_style(name: str, index: int) -> PointStyle:
    return _STYLES.get(name) or _OTHER_STYLES[index % len(_OTHER_STYLES)]


def shorten(text: str, max_length: int) -> str:
    one_line = "".join(character if character.isprintable() else " " for character in text)
    return one_line if len(one_line) <= max_length else f"{one_line[: max_length - 1]}…"

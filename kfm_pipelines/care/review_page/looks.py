"""Sizes, colours and letters that all parts of a map share. Sizes are in CSS pixels."""

WIDTH = 384.0
LEFT, RIGHT, TOP, TICKS, ROW = 32.0, 10.0, 24.0, 16.0, 15.0
INK, MUTED, LINE, EDGE = "#1d2733", "#4b5866", "#d5dbe1", "#123a66"
FONT = "DejaVu Sans"  # comes with matplotlib, so it is the same on every machine

# Shape as well as colour tells the classes apart.
_LOOKS = {
    "open": ("#00805c", "s"),
    "generalised": ("#e69f00", "o"),
    "restricted": ("#c2500a", "^"),
    "withheld": ("#5b2a86", "D"),
}
_OTHER_LOOKS = (("#1d2733", "o"), ("#00805c", "s"), ("#c2500a", "^"), ("#5b2a86", "D"), ("#e69f00", "v"))


def look(name: str, index: int) -> tuple[str, str]:
    return _LOOKS.get(name) or _OTHER_LOOKS[index % len(_OTHER_LOOKS)]


def shortened(text: str, longest: int) -> str:
    one_line = "".join(character if character.isprintable() else " " for character in text)
    return one_line if len(one_line) <= longest else f"{one_line[: longest - 1]}…"

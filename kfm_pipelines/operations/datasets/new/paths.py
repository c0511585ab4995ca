"""Guesses where objects of a dataset lie, and which part of their names is their time."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

from kfm_pipelines.declarations.words import WindowLength

# From the most exact to the least. The first time in a name counts, read as exactly as it is written.
_YEAR, _MONTH, _DAY, _HOUR = r"(?:19|20)\d{2}", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])", r"(?:[01]\d|2[0-3])"
_MINUTES = r"(?:[0-5]\d){1,2}"  # and seconds
_DATES = tuple(
    re.compile(rf"(?<!\d){pattern}(?!\d)")
    for pattern in (
        rf"(?P<year>{_YEAR})/(?P<month>{_MONTH})/(?P<day>{_DAY})/(?P<hour>{_HOUR})",
        rf"(?P<year>{_YEAR})-(?P<month>{_MONTH})-(?P<day>{_DAY})[T_-](?P<hour>{_HOUR})(?P<rest>[:-]?{_MINUTES})",
        rf"(?P<year>{_YEAR})(?P<month>{_MONTH})(?P<day>{_DAY})[T_-](?P<hour>{_HOUR})(?P<rest>{_MINUTES})",
        rf"(?P<year>{_YEAR})(?P<month>{_MONTH})(?P<day>{_DAY})(?P<hour>{_HOUR})(?P<rest>{_MINUTES}|)",
        rf"(?P<year>{_YEAR})/(?P<month>{_MONTH})/(?P<day>{_DAY})",
        rf"(?P<year>{_YEAR})-(?P<month>{_MONTH})-(?P<day>{_DAY})",
        rf"(?P<year>{_YEAR})_(?P<month>{_MONTH})_(?P<day>{_DAY})",
        rf"(?P<year>{_YEAR})(?P<month>{_MONTH})(?P<day>{_DAY})",
        rf"(?P<year>{_YEAR})[/_-](?P<month>{_MONTH})",
        rf"(?P<year>{_YEAR})",
    )
)
_GROUPS = {"year": r"\d{4}", "month": r"\d{2}", "day": r"\d{2}", "hour": r"\d{2}"}
_FOLDERS: dict[WindowLength, tuple[str, ...]] = {
    "hour": ("year", "month", "day", "hour"),
    "day": ("year", "month", "day"),
    "month": ("year", "month"),
    "year": ("year",),
}


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """`is_dated` says whether the name of the object had a time; without one, objects get folders by time."""

    prefix: str
    object_pattern: str
    window: WindowLength
    is_dated: bool
    start: datetime | None = None  # of the window of the object that was looked at


def guess_place(object_key: str, folder: str, times: tuple[datetime, datetime] | None) -> ObjectPlace:
    """`object_key` is the whole name of an object, or of a file, which would be uploaded into `folder`."""
    name = object_key if "/" in object_key else f"{folder}{object_key}"
    matches = [match for pattern in _DATES if (match := pattern.search(name, len(_folder(name, folder))))]
    found = min(matches, key=lambda one: one.start(), default=None)
    if found is None:
        return _place_in_folders(folder, PurePosixPath(name).suffix, _window_of_times(times))
    prefix = name[: found.start()].rpartition("/")[0]
    prefix = f"{prefix}/" if prefix else folder
    groups = found.groupdict()
    window: WindowLength = next(one for one in ("hour", "day", "month", "year") if groups.get(one))
    numbers = [int(groups.get(one) or least) for one, least in (("year", 1), ("month", 1), ("day", 1), ("hour", 0))]
    start = datetime(numbers[0], numbers[1], numbers[2], numbers[3], tzinfo=UTC)
    return ObjectPlace(prefix, _pattern(name, found), window, is_dated=True, start=start)


def _place_in_folders(folder: str, suffix: str, window: WindowLength) -> ObjectPlace:
    dated = "/".join(f"(?P<{one}>{_GROUPS[one]})" for one in _FOLDERS[window])
    pattern = rf"{_vary(folder, keep=True)}{dated}/[A-Za-z0-9_.-]+{re.escape(suffix)}"
    return ObjectPlace(folder, pattern, window, is_dated=False)


def _folder(name: str, folder: str) -> str:
    """A year in the name of the dataset itself is no time."""
    return folder if name.startswith(folder) else ""


def _pattern(name: str, found: re.Match[str]) -> str:
    date, at = "", found.start()
    for group, value in found.groupdict().items():
        if value:
            date += _vary(name[at : found.start(group)], keep=True)
            date += r"[0-9:-]*" if group == "rest" else f"(?P<{group}>{_GROUPS[group]})"
            at = found.end(group)
    before, after = name[: found.start()], name[found.end() :]
    return f"{_vary(before, keep=True)}{date}{_vary(after, keep=False)}"


def _vary(text: str, *, keep: bool) -> str:
    """Lets numbers after the time differ, and what follows a folder; the ending stays."""
    if keep:
        return re.escape(text).replace(r"\-", "-")
    if text.startswith("/"):
        return rf"/[A-Za-z0-9_./-]+{re.escape(PurePosixPath(text).suffix)}"
    stem, dot, suffix = text.rpartition(".") if "." in text else (text, "", "")
    return re.sub(r"\d+", lambda _: r"\d+", re.escape(stem).replace(r"\-", "-")) + re.escape(f"{dot}{suffix}")


def _window_of_times(times: tuple[datetime, datetime] | None) -> WindowLength:
    if times is None:
        return "year"
    first, last = times
    if last - first < timedelta(hours=1) and first.hour == last.hour and (first.minute or last.minute):
        return "hour"
    if first.date() == last.date():
        return "day"
    return "month" if (first.year, first.month) == (last.year, last.month) else "year"

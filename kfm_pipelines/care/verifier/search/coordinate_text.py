"""Parses places as people write them: numbers, degrees with minutes, pairs of degrees, geohashes and MGRS."""

import re
from itertools import pairwise

from kfm_pipelines.care.verifier.search.grids import GEOHASH_ALPHABET, GEOHASH_LENGTH

_NUMBER = re.compile(r"(?<![0-9.])[0-9]{1,18}(?:\.[0-9]+)?(?![0-9]|\.[0-9])")
_DEGREES = re.compile(r"(?<![0-9.])[0-9]{1,3}\.[0-9]{2,}(?![0-9]|\.[0-9])")
_PAIR = re.compile(
    r"(?<![0-9.])(-?[0-9]{1,3}\.[0-9]{2,})[°º]?\s*[NSEW]?\s*[,;/|\s]\s*(?:[NSEW]\s*)?(-?[0-9]{1,3}\.[0-9]{2,})(?![0-9]|\.[0-9])",
    re.IGNORECASE,
)
_MINUTES = r"([0-9]{1,2}(?:\.[0-9]+)?)"
_DEGREES_WITH_UNITS = re.compile(
    rf"([0-9]{{1,3}})\s*(?:°|º|˚|degrees|deg|d)\s*{_MINUTES}\s*(?:'|′|’|minutes|min|m)?\s*(?:{_MINUTES}\s*(?:\"|″|”|''|s))?",
    re.IGNORECASE,
)
_DEGREES_WITH_DIRECTION = re.compile(rf"(?<![0-9.:])([0-9]{{1,3}})[\s:]+{_MINUTES}(?:[\s:]+{_MINUTES})?\s*[NSEW]\b")
_GEOHASH = re.compile(rf"(?<![0-9a-z])[{GEOHASH_ALPHABET}]{{{GEOHASH_LENGTH},12}}(?![0-9a-z])")
_MGRS = re.compile(
    r"(?<![0-9])([0-9]{1,2})\s?([C-HJ-NP-X])\s?[A-HJ-NP-Z]\s?[A-HJ-NP-V]\s?([0-9]{2,5}\s[0-9]{2,5}|[0-9]{4,10})(?![0-9])",
    re.IGNORECASE,
)


def numbers(text: str) -> list[float]:
    """Returns numbers without signs, because a hyphen may mean anything."""
    return [float(number) for number in _NUMBER.findall(text)]


def degrees(text: str) -> list[float]:
    """Returns possible degrees to a kilometre or finer, without signs, including minutes and seconds."""
    return [float(number) for number in _DEGREES.findall(text)] + sexagesimal(text)


def sexagesimal(text: str) -> list[float]:
    found = _DEGREES_WITH_UNITS.findall(text) + _DEGREES_WITH_DIRECTION.findall(text)
    return [
        int(whole) + float(minutes) / 60 + float(seconds or 0) / 3600
        for whole, minutes, seconds in found
        if float(minutes) < 60 and float(seconds or 0) < 60
    ]


def pairs(text: str) -> list[tuple[float, float]]:
    """Returns adjacent degrees that only separators and directions stand between."""
    decimal = [(float(one), float(other)) for one, other in _PAIR.findall(text)]
    return decimal + list(pairwise(sexagesimal(text)))


def geohashes(text: str) -> list[str]:
    return _GEOHASH.findall(text.lower())


def mgrs_squares(text: str) -> list[tuple[int, str]]:
    """Returns zone and band of every MGRS reference to a kilometre or finer."""
    found = [(zone, band, "".join(digits.split())) for zone, band, digits in _MGRS.findall(text)]
    return [(int(zone), band.upper()) for zone, band, digits in found if len(digits) % 2 == 0]

"""Units of columns and bands, in the spellings of UDUNITS and pint."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from kfm_pipelines.operations.datasets.check.problem import did_you_mean

if TYPE_CHECKING:
    import pint

# Names that data uses and pint does not define.
_MORE_UNITS = (
    "cubic_foot_per_second = foot ** 3 / second = cfs",
    "degrees_north = degree = degree_north = degreesN = degreeN",
    "degrees_east = degree = degree_east = degreesE = degreeE",
    "reflectivity_decibel = [] = dBZ",
    "practical_salinity_unit = [] = psu = PSU",
    "nephelometric_turbidity_unit = [] = NTU = FNU",
)
_COMMON = (
    "deg", "degC", "degF", "K", "m", "km", "cm", "mm", "ft", "inch", "mile", "m2", "km2", "ha", "acre", "ft2", "m3",
    "m3/s", "ft3/s", "cfs", "m/s", "mm/h", "knot", "kg", "g", "mg/l", "ug/m3", "Pa", "hPa", "mbar", "W/m2", "J",
    "s", "min", "h", "day", "year", "%", "1", "count", "ppm", "dB", "dBZ", "uS/cm", "NTU", "psu", "USD",
)  # fmt: skip
# UDUNITS writes exponents without a sign: m2, kg m-2 s-1.
_EXPONENT = re.compile(r"(?<=[A-Za-zµμ°_])\^?(-?[0-9]+)")


_WRITTEN = re.compile(r"[\w\s/*^.%°µμ()+-]{1,60}")


def unit_problem(unit: str) -> str | None:
    """Returns what is wrong with a unit."""
    if unit == "USD" or _is_known(unit):
        return None
    return f"{unit!r} is not a unit" + (did_you_mean(unit, _COMMON) or "; write it like ft3/s, degC, mm/h, % or 1")


def _is_known(unit: str) -> bool:
    if not _WRITTEN.fullmatch(unit) or not unit.strip() or "//" in unit:
        return False
    try:
        _registry().parse_units(_EXPONENT.sub(r"**\1", unit.strip()))
    except Exception:  # noqa: BLE001 - pint raises errors of many kinds for what it cannot parse
        return False
    return True


@cache
def _registry() -> "pint.UnitRegistry[Any]":
    import pint

    registry: pint.UnitRegistry[Any] = pint.UnitRegistry()
    for definition in _MORE_UNITS:
        registry.define(definition)
    return registry

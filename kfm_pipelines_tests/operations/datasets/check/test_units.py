"""Units are those of UDUNITS and pint, and the ones that data in use has."""

import pytest

from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.operations.datasets.check.units import unit_problem
from kfm_pipelines.settings import shipped_path


def test_all_units_in_use_are_known() -> None:
    used = {
        column.unit
        for dataset in load_datasets(shipped_path("resources")).values()
        for column in dataset.table.columns
        if column.unit
    }
    assert {unit: unit_problem(unit) for unit in used} == dict.fromkeys(used)


SPELLINGS = (
    "ft3/s", "cfs", "m3 s-1", "kg m-2 s-1", "m^2", "m2", "%", "1", "deg", "degC", "degree_Celsius", "dBZ", "mm/h",
    "mm h-1", "hPa", "ug/m3", "µg/m3", "degrees_north", "acre", "inHg", "uS/cm", "NTU", "psu", "W m-2", "USD",
)  # fmt: skip


@pytest.mark.parametrize("unit", SPELLINGS)
def test_spellings_of_both_are_accepted(unit: str) -> None:
    assert unit_problem(unit) is None


@pytest.mark.parametrize("unit", ["ft3/z", "bananas", "", " ", "m//s", "(", "ft3/", "__import__('os')"])
def test_what_is_no_unit_is_refused_in_a_sentence(unit: str) -> None:
    assert f"{unit!r} is not a unit" in str(unit_problem(unit))


def test_a_unit_that_is_nearly_right_is_guessed() -> None:
    assert str(unit_problem("ft3/z")).endswith("did you mean 'ft3/s'?")

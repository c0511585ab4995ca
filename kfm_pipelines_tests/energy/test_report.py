"""The report keeps methods apart, formats numbers for people, and draws any number of datasets and months."""

import struct
import warnings
from datetime import date

import pytest

from kfm_pipelines.energy.chart import draw_chart
from kfm_pipelines.energy.estimate import UNKNOWN, Energy, Method
from kfm_pipelines.energy.report import EnergyReport, ReportLine, format_number

KWH = 3_600_000.0


def line(
    dataset: str = "usgs/streamflow", month: int = 0, kwh: float | None = 1.0, method: Method = "estimated",
    for_nothing: float = 0.25,
) -> ReportLine:  # fmt: skip
    """`month` counts from November 2024."""
    start = date(2024 + (month + 10) // 12, (month + 10) % 12 + 1, 1)
    if kwh is None:
        return ReportLine(dataset, start, 1, 1, None, UNKNOWN, ("processor time",))
    return ReportLine(dataset, start, 2, 3, for_nothing, Energy(method, kwh * KWH, kwh * 394, kwh * 10), ())


def test_totals_are_per_method() -> None:
    once, again = line(kwh=1), line(month=1, kwh=3, for_nothing=0.75)
    report = EnergyReport((once, again, line(kwh=5, method="measured"), line(kwh=None)), ())
    measured, estimated, unknown = report.totals
    assert (measured.energy.energy_kwh, estimated.energy.energy_kwh, unknown.energy) == (5, 4, UNKNOWN)
    assert estimated.wasted_share == pytest.approx((0.25 + 2.25) / 4)
    assert unknown.wasted_share is None
    assert estimated.as_cells() == ("all", "", "estimated", "", "", "4.00", "1.58", "40.0", "62 %")


def test_a_total_with_an_unknown_part_is_unknown() -> None:
    part = ReportLine("a/b", date(2025, 1, 1), 1, 1, None, Energy("estimated", 1.0, 1.0, None), ("memory",))
    [total] = EnergyReport((line(), part), ()).totals
    assert (total.energy.cost_usd, total.wasted_share) == (None, None)
    assert total.energy.watt_seconds == KWH + 1
    assert "Some estimates leave out memory, which could not be read." in EnergyReport((part,), ()).notes


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "unknown"), (0, "0"), (0.00000137, "0.00000137"), (0.9996, "1.00"), (12.345, "12.3"), (9876.5, "9,880")],
)
def test_numbers_have_no_exponent(value: float | None, written: str) -> None:
    assert format_number(value) == written


@pytest.mark.parametrize(("datasets", "months"), [(1, 1), (3, 8)])
def test_any_number_of_datasets_and_months_can_be_drawn(datasets: int, months: int) -> None:
    """With any characters in their names, and without a warning."""
    lines = [line(rf"$\a_{{{n}}}$ & <b>^", month, 0.001 * 10**n) for n in range(datasets) for month in range(months)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = draw_chart(EnergyReport((*lines, line(lines[0].dataset, 0, None)), ()))
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (1267, int(144 * (1.6 + 0.28 * (len(lines) + 1))))


def test_an_unknown_amount_can_be_drawn() -> None:
    assert draw_chart(EnergyReport((line(kwh=None),), ())).startswith(b"\x89PNG")

"""The report: each method for itself, readable numbers, a picture of any number of datasets and months."""

import struct
import warnings
from datetime import date

import pytest

from kfm_pipelines.energy.estimate import UNKNOWN, Energy, Method
from kfm_pipelines.energy.report.chart import draw_chart
from kfm_pipelines.energy.report.page import render_page
from kfm_pipelines.energy.report.report import EnergyReport, ReportLine
from kfm_pipelines.energy.report.table import format_number, format_percent, notes_on, rows_of

KWH = 3_600_000.0


def line(
    dataset: str = "usgs/streamflow", month: int = 0, kwh: float | None = 1.0, method: Method = "estimated",
    for_nothing: float = 0.25,
) -> ReportLine:  # fmt: skip
    """So many months after November 2024."""
    start = date(2024 + (month + 10) // 12, (month + 10) % 12 + 1, 1)
    if kwh is None:
        return ReportLine(dataset, start, 1, 1, None, UNKNOWN, ("processor time",))
    return ReportLine(dataset, start, 2, 3, for_nothing, Energy(method, kwh * KWH, kwh * 394, kwh * 10), ())


def test_totals_are_of_one_method_each() -> None:
    once, again = line(kwh=1), line(month=1, kwh=3, for_nothing=0.75)
    report = EnergyReport((once, again, line(kwh=5, method="measured"), line(kwh=None)), ())
    measured, estimated, unknown = report.totals
    assert (measured.energy.energy_kwh, estimated.energy.energy_kwh, unknown.energy) == (5, 4, UNKNOWN)
    assert estimated.wasted_share == pytest.approx((0.25 + 2.25) / 4)
    assert unknown.wasted_share is None
    assert [row.cells[2] for row in rows_of(report) if row.total] == ["measured", "estimated", "unknown"]
    assert len(rows_of(EnergyReport((line(),), ()))) == 1  # the total of one line is that line


def test_a_total_with_a_part_that_is_unknown_is_unknown() -> None:
    part = ReportLine("a/b", date(2025, 1, 1), 1, 1, None, Energy("estimated", 1.0, 1.0, None), ("memory",))
    [total] = EnergyReport((line(), part), ()).totals
    assert (total.energy.cost_usd, total.wasted_share) == (None, None)
    assert total.energy.watt_seconds == KWH + 1
    assert "In some estimates memory could not be read and is not in them." in notes_on(EnergyReport((part,), ()))


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "unknown"), (0, "0"), (0.00000137, "0.00000137"), (0.9996, "1.00"), (12.345, "12.3"), (9876.5, "9,880")],
)
def test_numbers_are_plain(value: float | None, written: str) -> None:
    assert format_number(value) == written
    assert format_percent(None) == "unknown"


@pytest.mark.parametrize(
    ("datasets", "months", "size"),
    [
        (1, 1, (1267, 676)),
        (1, 24, (1267, 676)),
        pytest.param(12, 24, (1900, 1540), marks=pytest.mark.slow),
    ],
)
def test_a_picture_of_any_number(datasets: int, months: int, size: tuple[int, int]) -> None:
    """Of names with any characters; without a word of warning."""
    lines = [line(rf"$\a_{{{n}}}$ & <b>^", month, 0.001 * 10**n) for n in range(datasets) for month in range(months)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = draw_chart(EnergyReport((*lines, line(lines[0].dataset, 0, None)), ()))
    assert struct.unpack(">II", picture[16:24]) == size


def test_a_picture_of_what_is_unknown() -> None:
    assert draw_chart(EnergyReport((line(kwh=None),), ())).startswith(b"\x89PNG")


def test_a_page_shows_names_as_they_are() -> None:
    page = render_page(EnergyReport((line("<script>alert(1)</script>"),), ()), b"").decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page

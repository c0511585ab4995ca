"""`kfm energy`: what pipelines drew, emitted and cost."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, json_option, print_json, stderr_console
from kfm_pipelines.console.session import open_services
from kfm_pipelines.energy.report.report import EnergyReport, energy_report
from kfm_pipelines.energy.report.table import COLUMNS, TEXT_COLUMNS, notes_on, rows_of
from kfm_pipelines.text import make_printable

_MONTH = re.compile(r"(?P<year>20[0-9]{2})-(?P<month>0[1-9]|1[0-2])")


class Month(click.ParamType):  # type: ignore[type-arg]
    """A month like 2025-12."""

    name = "month"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        found = _MONTH.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no month; write 2025-12", param, ctx)
        return date(int(found["year"]), int(found["month"]), 1)


file_option = click.Path(dir_okay=False, path_type=Path)


@click.group()
def energy() -> None:
    """What pipelines drew, emitted and cost."""


@energy.command()
@click.option("--dataset", type=StorableText(), help="Of this dataset alone.")
@click.option("--from", "first", type=Month(), help="From this month on: 2025-11.")
@click.option("--to", "last", type=Month(), help="Up to this month and with it.")
@click.option("--html", type=file_option, help="Also write a page with the picture and the table.")
@click.option("--png", type=file_option, help="Also write the picture.")
@json_option
def report(
    dataset: str | None, first: date | None, last: date | None, html: Path | None, png: Path | None, as_json: bool
) -> None:
    """Tell energy, carbon and cost by dataset and month, UTC, and how much of it published nothing.

    Measured and estimated energy are told apart and never added up. What was entered counts, whatever came of it.
    """
    if first and last and last < first:
        raise click.UsageError(f"--to {last:%Y-%m} is before --from {first:%Y-%m}")
    with open_services() as services:
        found = energy_report(services, dataset, first, _month_after(last) if last else None)
    if as_json:
        print_json(found.as_document())
    elif found.lines:
        _display(found)
    else:
        console.print("there is nothing in the energy ledger" + _format_filter(dataset, first, last))
    if html or png:
        _write_files(found, html, png)


def _display(found: EnergyReport) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in TEXT_COLUMNS else "right", overflow="fold")
    for row in rows_of(found):
        table.add_row(*(make_printable(cell) for cell in row.cells), style="bold" if row.total else None)
    console.print(table)
    for note in notes_on(found):
        console.print(note)
    console.print("Estimated with:")
    for source in found.sources:
        console.print(f"  {source}")


def _write_files(found: EnergyReport, html: Path | None, png: Path | None) -> None:
    if not found.lines:
        stderr_console.print("nothing to draw: no file was written")
        return
    from kfm_pipelines.energy.report.chart import draw_chart
    from kfm_pipelines.energy.report.page import render_page

    picture = draw_chart(found)
    for path, content in ((png, picture), (html, render_page(found, picture))):
        if path is None:
            continue
        try:
            path.write_bytes(content)
        except OSError as error:
            raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
        stderr_console.print(f"written: {path}")


def _format_filter(dataset: str | None, first: date | None, last: date | None) -> str:
    of = f" of {make_printable(dataset)}" if dataset else ""
    since = f" from {first:%Y-%m}" if first else ""
    until = f" to {last:%Y-%m}" if last else ""
    return f"{of}{since}{until}" if of or since or until else " yet"


def _month_after(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)

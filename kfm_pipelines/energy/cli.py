"""`kfm energy`: energy, carbon and cost of pipelines."""

from datetime import datetime
from io import StringIO
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, json_option, respond, stderr_console
from kfm_pipelines.console.session import open_services
from kfm_pipelines.energy.report import COLUMNS, TEXT_COLUMNS, EnergyReport, energy_report
from kfm_pipelines.text import make_printable

month_option = click.DateTime(["%Y-%m"])
file_option = click.Path(dir_okay=False, path_type=Path)


@click.group()
def energy() -> None:
    """Energy, carbon and cost of pipelines."""


@energy.command()
@click.option("--dataset", type=StorableText(), help="Only this dataset.")
@click.option("--from", "first", type=month_option, help="First month, like 2025-11.")
@click.option("--to", "last", type=month_option, help="Last month.")
@click.option("--html", type=file_option, help="Also write the table as an HTML page.")
@click.option("--png", type=file_option, help="Also write a chart.")
@json_option
def report(
    dataset: str | None,
    first: datetime | None,
    last: datetime | None,
    html: Path | None,
    png: Path | None,
    as_json: bool,
) -> None:
    """Report energy, carbon and cost by dataset and month (UTC), and how much of it published nothing.

    Measured and estimated energy are listed separately and never added up. Failed attempts count too.
    """
    if first and last and last < first:
        raise click.UsageError(f"--to {last:%Y-%m} is before --from {first:%Y-%m}")
    after = last.replace(year=last.year + last.month // 12, month=last.month % 12 + 1) if last else None
    with open_services() as services:
        found = energy_report(services, dataset, first, after)

    def display() -> None:
        if found.lines:
            _print_report(found, console)
        else:
            console.print("the energy ledger has no entries" + _format_filter(dataset, first, last))

    respond(found.as_document(), display, as_json=as_json)
    if (html or png) and not found.lines:
        stderr_console.print("no entries, so no file was written")
        return
    if html:
        page = Console(file=StringIO(), record=True, width=200, highlight=False, markup=False, emoji=False)
        _print_report(found, page)
        _write_file(html, page.export_html().encode())
    if png:
        from kfm_pipelines.energy.chart import draw_chart

        _write_file(png, draw_chart(found))


def _print_report(found: EnergyReport, output: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in TEXT_COLUMNS else "right", overflow="fold")
    for line in found.lines:
        table.add_row(*(make_printable(cell) for cell in line.as_cells()))
    for line in found.totals if len(found.lines) > 1 else ():
        table.add_row(*line.as_cells(), style="bold")
    output.print(table)
    for text in (*found.notes, "Estimated with:", *(f"  {source}" for source in found.sources)):
        output.print(text)


def _write_file(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
    stderr_console.print(f"written: {path}")


def _format_filter(dataset: str | None, first: datetime | None, last: datetime | None) -> str:
    name = f" for {make_printable(dataset)}" if dataset else ""
    start = f" from {first:%Y-%m}" if first else ""
    end = f" to {last:%Y-%m}" if last else ""
    return f"{name}{start}{end}" or " yet"

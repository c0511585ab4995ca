"""Output of commands: tables, findings and progress bars for people, one JSON document for programs."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kfm_pipelines.text import make_printable

SECONDS_BETWEEN_LINES = 2.0

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")

# Values are printed as they are: brackets are not markup, and :key: is not an emoji.
console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
if not console.is_terminal:
    console.width = 200  # a pipe has no window to fit into
stderr_console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2, default=_encode_json_value))


def respond(document: Mapping[str, Any], display: Callable[[], None], *, as_json: bool, ok: bool = True) -> None:
    """Prints the document for a program, or displays it to a person. Unless `ok`, the command exits with 1."""
    if as_json:
        print_json(document)
    else:
        display()
    if not ok:
        raise click.exceptions.Exit(1)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows under these headings; prints nothing when there are none. Keys and identities are never wrapped."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("identity", "key"))
    for row in rows:
        table.add_row(*(make_printable(_format_cell(value)) for value in row))
    if table.row_count:
        console.print(table)


def _format_cell(value: object) -> str:
    if isinstance(value, datetime):
        return format_time(value)
    return "" if value is None else str(value)


@contextmanager
def progress(title: str, total: int | None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Displays a bar on a terminal and plain lines elsewhere; on stderr, so that output stays clean."""
    if quiet:
        yield lambda _: None
    elif stderr_console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=stderr_console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield _line_printer(title, total)


def _line_printer(title: str, total: int | None) -> Callable[[int], None]:
    """Prints a line every few seconds, and the last one."""
    printed, quiet_until = -1, 0.0

    def show(done: int) -> None:
        nonlocal printed, quiet_until
        now = time.monotonic()
        if done != printed and (now >= quiet_until or done == total):
            printed, quiet_until = done, now + SECONDS_BETWEEN_LINES
            stderr_console.print(f"{title}: {done}" + (f" of {total}" if total else ""))

    return show


def format_count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_time(value: datetime | None) -> str:
    return f"{value:%Y-%m-%d %H:%M:%SZ}" if value else "none"


def _encode_json_value(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def display_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    if not findings:
        return
    console.print("findings", style="bold")
    for one in findings:
        display_finding(one)


def display_finding(finding: Mapping[str, Any], prefix: str = "") -> None:
    """Displays one finding as lines, because columns of a table would break paths apart."""
    rule = f"{finding['severity']}, {finding['gate']} gate, {finding['rule']}"
    _print_line(f"  {prefix}{rule}: {finding['subject']}: expected {finding['expected']}, found {finding['measured']}")
    if finding["sample"]:
        _print_line(f"    for example {finding['sample']}")
    if finding["fix"]:
        _print_line(f"    {finding['fix']}")


def _print_line(text: str) -> None:
    console.print(make_printable(text), markup=False, highlight=False)

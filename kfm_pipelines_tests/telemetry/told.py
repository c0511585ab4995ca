"""What a home's processes have told, read back from its files."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kfm_pipelines.telemetry.reading import read_totals
from kfm_pipelines.telemetry.totals import Totals
from kfm_pipelines.telemetry.traces_read import ToldSpan, read_spans


def spans(home: Path) -> list[ToldSpan]:
    return list(read_spans(home / "telemetry"))


def records(home: Path, schema: str) -> list[dict[str, Any]]:
    return list(_lines(home / "telemetry" / "records" / f"{schema}.jsonl"))


def log_lines(home: Path) -> list[dict[str, Any]]:
    return list(_lines(home / "telemetry" / "log.jsonl"))


def totals(home: Path) -> Totals:
    return read_totals(home / "telemetry")


def ancestors(of: ToldSpan, among: Sequence[ToldSpan]) -> list[str]:
    """The names of the spans it is under, the nearest first; the last may be one that nobody has written."""
    by_id = {one.id: one for one in among}
    found, one = [], of
    while one.parent in by_id:
        one = by_id[one.parent]
        found.append(one.name)
    return found


def _lines(path: Path) -> Iterator[Any]:
    if path.exists():
        with path.open() as file:
            yield from (json.loads(line) for line in file)

"""What a home's processes have told, read back from its files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kfm_pipelines.telemetry.reading import read_totals
from kfm_pipelines.telemetry.totals import Totals


@dataclass(frozen=True)
class ReadSpan:
    name: str
    trace: str
    id: str
    parent: str | None
    attributes: dict[str, Any]
    failed: str | None
    begun: datetime
    ended: datetime
    links: tuple[str, ...]


def spans(home: Path) -> list[ReadSpan]:
    return [
        _span(one)
        for line in _lines(home / "telemetry" / "spans.jsonl")
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for one in scope["spans"]
    ]


def records(home: Path, schema: str) -> list[dict[str, Any]]:
    return list(_lines(home / "telemetry" / "records" / f"{schema}.jsonl"))


def log_lines(home: Path) -> list[dict[str, Any]]:
    return list(_lines(home / "telemetry" / "log.jsonl"))


def totals(home: Path) -> Totals:
    return read_totals(home / "telemetry")


def ancestors(of: ReadSpan, among: Sequence[ReadSpan]) -> list[str]:
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


def _span(one: dict[str, Any]) -> ReadSpan:
    status = one.get("status", {})
    return ReadSpan(
        name=one["name"],
        trace=one["traceId"],
        id=one["spanId"],
        parent=one.get("parentSpanId") or None,
        attributes={item["key"]: _value(item["value"]) for item in one.get("attributes", [])},
        failed=status.get("message", "") if status.get("code") == 2 else None,
        begun=_instant(one["startTimeUnixNano"]),
        ended=_instant(one["endTimeUnixNano"]),
        links=tuple(link["traceId"] for link in one.get("links", [])),
    )


def _value(value: dict[str, Any]) -> Any:
    [(kind, content)] = value.items()
    if kind == "arrayValue":
        return [_value(item) for item in content.get("values", [])]
    return int(content) if kind == "intValue" else content


def _instant(nanoseconds: str) -> datetime:
    return datetime.fromtimestamp(int(nanoseconds) / 1e9, UTC)

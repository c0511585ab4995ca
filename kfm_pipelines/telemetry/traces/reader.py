"""Reads the spans file: the spans of a trace, and the traces that mention something."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kfm_pipelines.telemetry.line_files import previous_path
from kfm_pipelines.telemetry.traces.spans import SPANS_FILE

IDENTIFIER_ATTRIBUTES = ("kfm.key", "kfm.event_id", "kfm.run_id", "kfm.replay_id")


@dataclass(frozen=True)
class RecordedSpan:
    trace: str
    id: str
    parent: str | None
    name: str
    begun: datetime
    ended: datetime
    failed: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    links: tuple[str, ...] = ()  # the traces it refers to

    @property
    def milliseconds(self) -> float:
        return (self.ended - self.begun).total_seconds() * 1000

    def mentions(self, identifier: str) -> bool:
        values = (self.attributes.get(name) for name in IDENTIFIER_ATTRIBUTES)
        return any(identifier in value if isinstance(value, list) else identifier == value for value in values)


def spans_of_trace(folder: Path, trace: str) -> list[RecordedSpan]:
    return [span for span in read_spans(folder, trace) if span.trace == trace]


def traces_about(folder: Path, identifier: str) -> list[str]:
    """Returns the traces with a span about this key, event, run or replay, latest first."""
    latest: dict[str, datetime] = {}
    for span in read_spans(folder, identifier):
        if span.mentions(identifier):
            latest[span.trace] = max(span.ended, latest.get(span.trace, span.ended))
    return sorted(latest, key=lambda trace: latest[trace], reverse=True)


def read_spans(folder: Path, containing: str = "") -> Iterator[RecordedSpan]:
    """Yields the spans of every line that contains the text: parsing a line costs far more than searching it."""
    wanted = containing.encode(errors="replace")
    for path in (previous_path(folder / SPANS_FILE), folder / SPANS_FILE):
        with suppress(FileNotFoundError), path.open("rb") as file:
            for line in (one for one in file if wanted in one):
                with suppress(ValueError, KeyError, TypeError):  # a line torn by a crash
                    scopes = [
                        scope for resource in json.loads(line)["resourceSpans"] for scope in resource["scopeSpans"]
                    ]
                    yield from (_parse_span(one) for scope in scopes for one in scope["spans"])


def _parse_span(one: dict[str, Any]) -> RecordedSpan:
    status = one.get("status") or {}
    return RecordedSpan(
        trace=one["traceId"],
        id=one["spanId"],
        parent=one.get("parentSpanId") or None,
        name=one["name"],
        begun=_parse_time(one["startTimeUnixNano"]),
        ended=_parse_time(one["endTimeUnixNano"]),
        failed=status.get("message") or "failed" if status.get("code") == 2 else None,
        attributes={item["key"]: _parse_value(item["value"]) for item in one.get("attributes", [])},
        links=tuple(link["traceId"] for link in one.get("links", [])),
    )


def _parse_value(value: dict[str, Any]) -> Any:
    [(kind, content)] = value.items()
    if kind == "arrayValue":
        return [_parse_value(item) for item in content.get("values", [])]
    return int(content) if kind == "intValue" else content


def _parse_time(nanoseconds: str) -> datetime:
    return datetime.fromtimestamp(int(nanoseconds) / 1e9, UTC)

"""The spans file, read back: the spans of a trace, and the traces that something was told in."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kfm_pipelines.telemetry.append_only import previous_path

SPANS_FILE = "spans.jsonl"
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
    links: tuple[str, ...] = ()  # traces that it refers to

    @property
    def milliseconds(self) -> float:
        return (self.ended - self.begun).total_seconds() * 1000

    def mentions(self, what: str) -> bool:
        """Whether it is of this key, event, run or replay."""
        said = (self.attributes.get(name) for name in IDENTIFIER_ATTRIBUTES)
        return any(what in value if isinstance(value, list) else what == value for value in said)


def spans_of_trace(folder: Path, trace: str) -> list[RecordedSpan]:
    return [one for one in read_spans(folder, trace) if one.trace == trace]


def traces_about(folder: Path, what: str) -> list[str]:
    """Traces with a span of this key, event, run or replay, the latest first."""
    latest: dict[str, datetime] = {}
    for one in read_spans(folder, what):
        if one.mentions(what):
            latest[one.trace] = max(one.ended, latest.get(one.trace, one.ended))
    return sorted(latest, key=lambda trace: latest[trace], reverse=True)


def read_spans(folder: Path, containing: str = "") -> Iterator[RecordedSpan]:
    """Of lines that mention something, and so others too: reading a line costs far more than finding a word in it."""
    wanted = containing.encode(errors="replace")
    for path in (previous_path(folder / SPANS_FILE), folder / SPANS_FILE):
        with suppress(FileNotFoundError), path.open("rb") as file:
            for line in file:
                if wanted in line:
                    yield from _parse_line(line)


def _parse_line(line: bytes) -> Iterator[RecordedSpan]:
    """None of a line that a crash has torn."""
    with suppress(ValueError, KeyError, TypeError):
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                yield from (_parse_span(one) for one in scope["spans"])


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

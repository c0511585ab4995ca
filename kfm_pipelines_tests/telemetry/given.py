"""Telemetry to test with, and settings for it."""

import json
from pathlib import Path
from typing import Any

from kfm_pipelines.settings import Settings, load_settings
from kfm_pipelines.telemetry.reading import METRICS_FILE


def settings_in(home: Path, **environment: str) -> Settings:
    return load_settings({"KFM_POSTGRES_URL": "postgresql://nobody/none", "KFM_HOME": str(home), **environment})


def spans_told(home: Path) -> list[str]:
    """Names of the spans in the file."""
    file = home / "telemetry" / "spans.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    scopes = [scope for line in lines for of in line["resourceSpans"] for scope in of["scopeSpans"]]
    return [span["name"] for scope in scopes for span in scope["spans"]]


def line(name: str, kind: str, points: list[dict[str, Any]], *, at: int = 1) -> str:
    """A line of the metrics file, with one metric."""
    timed = [{"timeUnixNano": str(at), **point} for point in points]
    data = {"dataPoints": timed} | ({} if kind == "gauge" else {"aggregationTemporality": 1})
    metrics = [{"name": name, kind: data}]
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}, separators=(",", ":")) + "\n"


def count(amount: int, name: str = "messages_received_total", *, at: int = 1, **labels: str) -> str:
    said = labels or {"queue": "q"}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
    return line(name, "sum", [{"attributes": attributes, "asInt": str(amount)}], at=at)


def append(home: Path, *lines: str) -> Path:
    """To the metrics file of this home."""
    file = home / "telemetry" / METRICS_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write("".join(lines))
    return file

"""The log of a home that has nothing but a log, and what is in it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfm_pipelines.settings import Settings, load_settings
from kfm_pipelines.telemetry.logs import LOG_FILE, configure_logs


def settings_of(home: Path, **more: str) -> Settings:
    return load_settings({"KFM_HOME": str(home), "KFM_POSTGRES_URL": "postgresql://nobody@nowhere/none", **more})


@contextmanager
def logging_to(home: Path, **more: str) -> Iterator[Path]:
    """What this process logs goes there, until it is left."""
    configure_logs(settings_of(home, **more))
    try:
        yield home / "telemetry" / LOG_FILE
    finally:
        configure_logs(settings_of(home, KFM_LOG_LEVEL="off"))


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Every line; one that is not JSON is an error."""
    text = file.read_bytes().decode("ascii")
    assert text.endswith("\n")
    return [json.loads(line) for line in text[:-1].split("\n")]

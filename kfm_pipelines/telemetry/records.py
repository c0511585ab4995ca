"""Telemetry records: JSON lines that conform to a schema in `resources/telemetry/`."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfm_pipelines.telemetry.append_only import AppendOnlyFile, OneTimeWarning

if TYPE_CHECKING:
    import jsonschema_rs

log = logging.getLogger(__name__)


class RecordWriter:
    """Writes one file per schema; without a folder it writes nothing."""

    def __init__(self, folder: Path | None, resources: Path, on_refused: Callable[[], None]) -> None:
        self._folder = folder
        self._resources = resources
        self._on_refused = on_refused
        self._warning = OneTimeWarning(log)
        self._files: dict[str, AppendOnlyFile] = {}

    def write(self, schema: str, record: Mapping[str, Any]) -> bool:
        """Returns whether it was written. An invalid record is counted, logged without its values, and dropped."""
        if self._folder is None:
            return False
        try:
            violation = schema_violation(self._resources, schema, record)
            if violation is None:
                if schema not in self._files:
                    self._files[schema] = AppendOnlyFile(self._folder / f"{schema}.jsonl")
                self._files[schema].write(json.dumps(record, separators=(",", ":")) + "\n")
                return True
            log.error("a telemetry record violates %s at %s", schema, violation)
        except (OSError, ValueError) as error:  # a full disk, or a missing schema
            self._warning.log("telemetry records could not be written: %s", type(error).__name__)
        self._on_refused()
        return False

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def schema_violation(resources: Path, schema: str, record: Mapping[str, Any]) -> str | None:
    """Returns the path of the first value that violates the schema, never the value; None when the record is valid."""
    validator = _validator(resources, schema)
    if validator.is_valid(record):
        return None
    first = next(iter(validator.iter_errors(record)))
    return "/".join(str(part) for part in first.instance_path) or "the record as a whole"


@cache
def _validator(resources: Path, schema: str) -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs

    text = (resources / "telemetry" / f"{schema}.schema.json").read_text()
    return jsonschema_rs.Draft202012Validator(json.loads(text), validate_formats=True)

"""Files of lines that several processes append to, and the records of telemetry in them, which conform to a schema in
`resources/telemetry/`. Each line is one write, so lines never interleave."""

import errno
import json
import logging
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jsonschema_rs

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024 * 1024

CountDropped = Callable[[str, int], None]  # signal, number of items


class OneTimeWarning:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged = False

    def log(self, text: str, *args: object) -> None:
        if not self._logged:
            self._logged = True
            self._log.warning(text, *args)


class AppendOnlyFile:
    """A text stream of lines, readable by its owner only. A full file replaces the one at `previous_path`."""

    closed = False

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._torn = False

    def write(self, line: str) -> int:
        """Writes the whole line or raises OSError. After a partial write the next line starts on a new line."""
        data = line.encode()
        descriptor = self._open()
        if self._torn:
            os.write(descriptor, b"\n")
            self._torn = False
        if os.write(descriptor, data) < len(data):
            self._torn = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(line)

    def flush(self) -> None:
        """Does nothing: writes are not buffered."""

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        known = self._descriptor
        if known is not None and (os.fstat(known).st_nlink == 0 or self._rotate_if_full(known)):
            self.close()
        if self._descriptor is None:
            _make_folders(self.path.parent)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return self._descriptor

    def _rotate_if_full(self, descriptor: int) -> bool:
        """The first process to find the file full renames it; others see that the path names another file."""
        if os.fstat(descriptor).st_size < self._max_bytes:
            return False
        try:
            if os.path.samestat(self.path.stat(), os.fstat(descriptor)):
                self.path.replace(previous_path(self.path))
        except FileNotFoundError:
            pass
        return True


def _make_folders(folder: Path) -> None:
    """Creates every missing folder with mode 0700; Path.mkdir would apply the mode to the last one only."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def previous_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.previous{path.suffix}")


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

"""Checks messages against the JSON Schemas in resources/contracts/; unknown fields and newer minor versions pass."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.text import quote_value, read_timestamp, read_utc

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema import Draft202012Validator, ValidationError

Contract = Literal[
    "auto-update-v1", "eventbridge-s3-v0", "fifo-envelope-v1", "landsat-c2", "nexrad-filterable", "s3-envelope-v1",
    "s3-notification-v2", "s3-test-event", "sentinel-1", "sentinel-2", "sns-notification",
]  # fmt: skip

# Enough to choose the best one from; finding all in a hostile megabyte takes half a minute.
MAX_ERRORS = 50
# S3 sends one record and a Sentinel-2 product a few dozen tiles; a megabyte could hold tens of thousands.
MAX_RECORDS = 200

_FORMATS: Mapping[str, Callable[[str], object]] = {"date-time": read_timestamp, "utc-date-time": read_utc}
_VERSION = re.compile(r"(?P<major>[0-9]{1,9})(?:\.[0-9]{1,9})*")


def check_major_version(field: str, version: object, *, supported: int) -> None:
    """Refuses another major version by name, before its changed fields are reported as broken."""
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found and int(found["major"]) != supported:
        raise ContractBroken(
            f"{field} {quote_value(version)} is another major version; this pipeline reads {supported}.x"
        )


def check_record_count(records: object) -> None:
    """Refuses a message with too many records before each costs a check, an identity and a row."""
    if isinstance(records, list) and len(records) > MAX_RECORDS:
        raise ContractBroken(f"message has {len(records)} records; at most {MAX_RECORDS} are read")


def check_contract(contract: Contract, document: object) -> None:
    """Raises ContractBroken naming the field. The validator that can explain is slow: it sees broken documents only."""
    if _fast_validator(contract).is_valid(document):
        return
    errors = list(islice(_explaining_validator(contract).iter_errors(document), MAX_ERRORS))
    if errors:
        from jsonschema.exceptions import best_match

        raise ContractBroken(f"{contract}: {_format_error(best_match(errors))}")


@cache
def _fast_validator(contract: Contract) -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs

    formats: dict[str, Callable[[str], bool]] = {name: partial(_is_readable, read) for name, read in _FORMATS.items()}
    return jsonschema_rs.Draft202012Validator(_load_schema(contract), formats=formats, validate_formats=True)


def _is_readable(read: Callable[[str], object], text: str) -> bool:
    try:
        return bool(read(text))
    except ValueError:
        return False


@cache
def _explaining_validator(contract: Contract) -> "Draft202012Validator":
    from jsonschema import Draft202012Validator, FormatChecker

    formats = FormatChecker(formats=())
    for name, read in _FORMATS.items():
        # Other types pass: `type` in the schema checks them.
        formats.checks(name, raises=ValueError)(
            lambda value, read=read: not isinstance(value, str) or bool(read(value))
        )
    return Draft202012Validator(_load_schema(contract), format_checker=formats)


def _load_schema(contract: Contract) -> Any:
    path = shipped_path("resources") / "contracts" / f"{contract}.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _format_error(error: "ValidationError") -> str:
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    subject = field or "message"
    if error.validator == "format":
        return f"{subject}: {error.cause}"
    if error.validator in ("required", "dependentRequired"):
        return f"{subject}: {error.message}"
    expected = error.schema.get("description") if isinstance(error.schema, dict) else None
    expected = expected or f"{error.validator} {error.validator_value}"
    return f"{subject} must be {expected}, not {quote_value(error.instance)}"

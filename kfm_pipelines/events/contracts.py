"""Message contracts: JSON Schemas in resources/contracts/, and a broken one as a sentence a producer can act on.

The schemas are additive: unknown fields and newer minor versions pass, another major version does not.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events.timestamps import read_timestamp, read_utc
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.text import quote_value

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema import Draft202012Validator, ValidationError

Contract = Literal[
    "auto-update-v1",
    "eventbridge-s3-v0",
    "fifo-envelope-v1",
    "landsat-c2",
    "nexrad-filterable",
    "s3-envelope-v1",
    "s3-notification-v2",
    "s3-test-event",
    "sentinel-1",
    "sentinel-2",
    "sns-notification",
]

# Enough to choose the telling one from; a hostile megabyte has a quarter of a million, half a minute's work to find.
MAX_ERRORS = 50
# S3 sends one record, a Sentinel-2 product a few dozen tiles; a megabyte has room for tens of thousands.
MAX_RECORDS = 200

_FORMATS: Mapping[str, Callable[[str], object]] = {"date-time": read_timestamp, "utc-date-time": read_utc}
_VERSION = re.compile(r"(?P<major>[0-9]{1,9})(?:\.[0-9]{1,9})*")


def check_major_version(field: str, version: object, *, supported: int) -> None:
    """Refuse another major version by name, before its changed fields are mistaken for broken ones."""
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found and int(found["major"]) != supported:
        raise ContractBroken(
            f"{field} {quote_value(version)} is another major version; this pipeline reads {supported}.x"
        )


def check_record_count(records: object) -> None:
    """Refuse a message of too many records before each costs a check, an identity and a row."""
    if isinstance(records, list) and len(records) > MAX_RECORDS:
        raise ContractBroken(f"message has {len(records)} records; at most {MAX_RECORDS} are read")


def check_contract(contract: Contract, document: object) -> None:
    """Refuse a document that breaks the contract, naming the field and what was expected.

    A compiled validator says whether it does; the one that can explain is a hundred times slower, and only asked then.
    """
    if _fast_validator(contract).is_valid(document):
        return
    errors = list(islice(_explaining_validator(contract).iter_errors(document), MAX_ERRORS))
    if errors:
        from jsonschema.exceptions import best_match

        raise ContractBroken(f"{contract}: {_format_error(best_match(errors))}")


@cache
def _fast_validator(contract: Contract) -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs

    def names_an_instant(read: Callable[[str], object]) -> Callable[[str], bool]:
        def check(text: str) -> bool:
            try:
                return bool(read(text))
            except ValueError:
                return False

        return check

    formats = {name: names_an_instant(read) for name, read in _FORMATS.items()}
    return jsonschema_rs.Draft202012Validator(_load_schema(contract), formats=formats, validate_formats=True)


@cache
def _explaining_validator(contract: Contract) -> "Draft202012Validator":
    from jsonschema import Draft202012Validator, FormatChecker

    formats = FormatChecker(formats=())
    for name, read in _FORMATS.items():
        # A format says nothing about other types; `type` in the schema does.
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
    return f"{subject} must be {expected or f'{error.validator} {error.validator_value}'}, not {quote_value(error.instance)}"

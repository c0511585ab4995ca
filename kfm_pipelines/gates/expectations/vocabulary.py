"""Which expectations and arguments a suite may use, by the schemas shipped with GX; GX itself is not imported."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The schema gate checks columns and types; GX sees only the columns that a suite uses.
SCHEMA_GATE_EXPECTATIONS = frozenset({
    "expect_column_to_exist", "expect_column_type_to_be",
    "expect_column_values_to_be_in_type_list", "expect_column_values_to_be_of_type",
    "expect_table_column_count_to_be_between", "expect_table_column_count_to_equal",
    "expect_table_columns_to_match_ordered_list", "expect_table_columns_to_match_set",
})  # fmt: skip
# A suite must not control how it is run: it could put values into the result. Row conditions are code that pandas
# would evaluate on unchecked columns.
FORBIDDEN_ARGUMENTS = frozenset({
    "batch_id", "catch_exceptions", "condition_parser", "description", "id", "library_metadata", "meta", "metadata",
    "notes", "rendered_content", "result_format", "row_condition", "severity", "windows",
})  # fmt: skip


def validate_expectation(kind: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yields one sentence for each mistake in an expectation."""
    if kind not in _schema_files():
        yield f"there is no expectation {kind[:80]!r} for tables here"
    elif kind in SCHEMA_GATE_EXPECTATIONS:
        yield f"{kind} is the task of the schema gate; declare the columns instead"
    else:
        yield from _validate_arguments(_schema(kind), arguments)


def _validate_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[str]:
    from jsonschema import Draft7Validator

    allowed = {name: value for name, value in schema["properties"].items() if name not in FORBIDDEN_ARGUMENTS}
    for name, value in arguments.items():
        if name not in allowed:
            yield f"kwargs: {name[:80]!r} is not one of {', '.join(sorted(allowed))}"
        elif isinstance(value, dict) and "$PARAMETER" in value:
            yield f"kwargs: {name!r} must be a value; there are no parameters"
    for error in Draft7Validator({**schema, "properties": allowed}).iter_errors(dict(arguments)):
        where = ".".join(["kwargs", *map(str, error.absolute_path)])
        yield f"{where}: {' '.join(error.message.split())[:200]}"


@cache
def _schema_files() -> Mapping[str, str]:
    """Returns the schema file of each expectation that GX can run on a table in memory."""
    index = json.loads((_schema_folder() / "index.json").read_text(encoding="utf-8"))
    return {
        kind: entry["schema_file"]
        for kind, entry in index["expectations"].items()
        if "Pandas" in entry["supported_data_sources"]
    }


@cache
def _schema(kind: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = json.loads((_schema_folder() / _schema_files()[kind]).read_text(encoding="utf-8"))
    return schema


def _schema_folder() -> Path:
    found = find_spec("great_expectations")  # finds the package without importing it
    if found is None or found.origin is None:
        raise ModuleNotFoundError("great_expectations is not installed")
    return Path(found.origin).parent / "expectations" / "core" / "schemas"

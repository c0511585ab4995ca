"""What changed between two schemas, in words. A schema is what readers build on: names, types, nulls, units."""

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785

from kfm_pipelines.declarations import Table

SchemaColumns = Mapping[str, Mapping[str, Any]]


def columns_of(table: Table) -> dict[str, dict[str, Any]]:
    return {
        column.name: {"type": column.type, "nullable": column.nullable, "unit": column.unit} for column in table.columns
    }


def schema_digest(columns: SchemaColumns) -> str:
    """The order of columns is no part of it."""
    return hashlib.sha256(rfc8785.dumps({name: dict(facts) for name, facts in columns.items()})).hexdigest()


def diff_schemas(before: SchemaColumns, after: SchemaColumns) -> list[str]:
    """One phrase for each change, in the order of names; empty when nothing changed."""
    changes = []
    for name in sorted({*before, *after}):
        if name not in after:
            changes.append(f"{name} removed")
        elif name not in before:
            changes.append(f"{name} added ({_format_column(after[name])})")
        else:
            changes += _diff_column(name, before[name], after[name])
    return changes


def _diff_column(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {fact} {_format_fact(before.get(fact))} is now {_format_fact(after.get(fact))}"
        for fact in ("type", "nullable", "unit")
        if before.get(fact) != after.get(fact)
    ]


def _format_column(column: Mapping[str, Any]) -> str:
    unit = f" in {column['unit']}" if column.get("unit") else ""
    return f"{column['type']}{unit}{', may be null' if column.get('nullable') else ''}"


def _format_fact(fact: object) -> str:
    return "none" if fact is None else {True: "yes", False: "no"}[fact] if isinstance(fact, bool) else str(fact)

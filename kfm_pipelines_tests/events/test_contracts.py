"""The shipped contracts are valid JSON Schema 2020-12 and stay additive."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kfm_pipelines.settings import shipped

CONTRACTS = sorted((shipped("resources") / "contracts").glob("*.schema.json"))


def subschemas(schema: object) -> Iterator[dict[str, object]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from subschemas(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from subschemas(value)


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.stem)
def test_contracts_are_valid_and_refuse_no_unknown_field(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    closed = {"additionalProperties", "unevaluatedProperties", "propertyNames", "maxProperties"}
    assert not [part for part in subschemas(schema) if closed & part.keys()]


def test_every_shape_has_a_contract() -> None:
    assert {path.name for path in CONTRACTS} >= {"s3-notification-v2.schema.json", "auto-update-v1.schema.json"}

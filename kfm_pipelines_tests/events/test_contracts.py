"""The shipped contracts are valid JSON Schema 2020-12 and stay additive."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from kfm_pipelines.events.contracts import Contract
from kfm_pipelines.settings import shipped_path

# A profile, a manifest and a declaration are no messages: they are about what we write ourselves, and strict.
CONTRACTS = sorted(
    path
    for path in (shipped_path("resources") / "contracts").glob("*.schema.json")
    if not ("-profile-" in path.name or path.name.startswith(("run-manifest-", "dataset-")))
)


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


def test_every_contract_the_code_names_is_a_file_and_the_other_way_round() -> None:
    assert {path.name.removesuffix(".schema.json") for path in CONTRACTS} == set(get_args(Contract))


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.stem)
def test_a_contract_describes_what_each_field_must_be(path: Path) -> None:
    """The sentence a producer reads is made of these."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    described = [part for part in subschemas(schema["properties"]) if {"type", "const", "enum"} & part.keys()]
    assert described
    assert not [part for part in described if not isinstance(part.get("description"), str)]

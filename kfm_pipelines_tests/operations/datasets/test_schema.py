"""The JSON Schema that editors use is that of the model."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kfm_pipelines.operations.datasets.schema import SCHEMA_FILE, schema_document
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.sites.command import run_kfm

SHIPPED = shipped_path("resources") / "contracts" / SCHEMA_FILE
DECLARATIONS = sorted((shipped_path("resources") / "datasets").glob("*.yaml"))


def mistakes(document: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schema_document()).iter_errors(document)]


def test_the_shipped_schema_is_current() -> None:
    """If not: kfm datasets schema > resources/contracts/dataset-v1.schema.json."""
    assert json.loads(SHIPPED.read_text()) == schema_document()
    assert json.loads(run_kfm("datasets", "schema").out) == schema_document()


@pytest.mark.parametrize("path", DECLARATIONS, ids=lambda path: path.stem)
def test_every_declaration_fits_it(path: Path) -> None:
    assert mistakes(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"processor": "tabel"},
        {"watermark": {"skew": "soon"}},
        {"table": ...},
        {"processor": "raster", "table": ...},
        {"title": ...},
    ],
    ids=str,
)
def test_it_refuses_what_the_model_refuses(change: dict[str, Any]) -> None:
    document = yaml.safe_load(DECLARATIONS[-1].read_text())
    for name, value in change.items():
        if value is ...:
            del document[name]
        else:
            document[name] = value
    assert len(mistakes(document)) == 1

"""The published schemas of the extensions, where they are on the machine, and the two validators that go by them.

They belong to others and are not part of the project.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pystac.validation.stac_validator import JsonSchemaSTACValidator

import kfm_pipelines_tests
from kfm_pipelines.catalogs.profile import PROFILE, profile_bytes

# What the storage extension refers to besides its own schema: one for each platform.
_DRAFT = "http://json-schema.org/draft-07/schema#"
_STORAGE = "https://stac-extensions.github.io/storage/v2.0.0/platforms"
_PLATFORMS: dict[str, Any] = {
    f"{_STORAGE}/aws-s3.json": {
        "$schema": _DRAFT,
        "if": {"properties": {"type": {"const": "aws-s3"}}},
        "then": {
            "required": ["bucket", "region"],
            "properties": {"platform": {"const": "https://{bucket}.s3.{region}.amazonaws.com"}},
        },
    },
    f"{_STORAGE}/custom-s3.json": {"$schema": _DRAFT, "not": {"properties": {"type": {"const": "custom-s3"}}}},
    f"{_STORAGE}/ms-azure.json": {"$schema": _DRAFT, "not": {"properties": {"type": {"const": "ms-azure"}}}},
}
_PROJJSON = "https://proj.org/schemas/v0.7/projjson.schema.json"


@cache
def schemas() -> dict[str, Any]:
    """By address: the published ones, ours, and stand-ins for what none of our documents uses."""
    beside = Path(kfm_pipelines_tests.__file__).parents[2] / "shared" / "stac-schemas"
    folder = Path(os.environ.get("KFM_STAC_SCHEMAS") or beside)
    if not folder.is_dir():
        pytest.skip("the official extension schemas are not on this machine; set KFM_STAC_SCHEMAS")
    found = {PROFILE: json.loads(profile_bytes()), **_PLATFORMS, _PROJJSON: {"$schema": _DRAFT}}
    for path in folder.glob("*.json"):
        name, _, version = path.stem.rpartition("-")
        found[f"https://stac-extensions.github.io/{name}/{version}/schema.json"] = json.loads(path.read_text())
    return found


def official_validator() -> JsonSchemaSTACValidator:
    """pystac's own validator, with the extensions' published schemas in its cache."""
    validator = JsonSchemaSTACValidator()
    validator.schema_cache.update(schemas())
    return validator

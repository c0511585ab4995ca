"""The JSON Schema of declarations, for editors: generated from the model, and kept in resources/contracts."""

from typing import Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import NO_OBJECTS

SCHEMA_FILE = "dataset-v1.schema.json"
_DURATION = {
    "type": "string",
    "pattern": "^[0-9]{1,9} ?(s|min|h|d)$",
    "description": "A number and a unit: 90 s, 15 min, 3 h or 2 d",
}


def schema_document() -> dict[str, Any]:
    """A table is required only of processors that do not derive it, and a bucket only of inputs without upstreams."""
    document = Dataset.model_json_schema()
    required = [name for name in document.pop("required") if name != "table"]
    processors = document["properties"]["processor"]["enum"]
    derived = [name for name in processors if name in ("raster", "scene")]
    plain = [name for name in processors if name not in derived]
    rules = [{"if": _processor_is(plain), "then": {"required": ["table"]}}]
    rules += [{"if": _processor_is([name]), "then": {"required": [name]}} for name in derived]
    from_objects = document["$defs"]["Input"]
    from_objects["required"] = [name for name in from_objects["required"] if name not in NO_OBJECTS]
    from_objects["anyOf"] = [{"required": ["upstream"]}, {"required": list(NO_OBJECTS)}]
    document["properties"]["tables"]["anyOf"].insert(0, {"const": "iceberg"})  # instead of a section
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kfm:contracts:{SCHEMA_FILE}",
        "title": "Declaration of a dataset of KFM Pipelines",
    }
    finished: dict[str, Any] = _write_durations({**document, **head, "required": required, "allOf": rules})
    return finished


def _processor_is(names: list[str]) -> dict[str, Any]:
    return {"properties": {"processor": {"enum": names}}, "required": ["processor"]}


def _write_durations(node: Any) -> Any:
    """Replaces the durations of pydantic by ours, also where they are defaults."""
    if isinstance(node, list):
        return [_write_durations(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "duration":
        kept = {name: node[name] for name in ("title",) if name in node}
        return {**kept, **_DURATION}
    return {name: _write_durations(one) for name, one in node.items()}

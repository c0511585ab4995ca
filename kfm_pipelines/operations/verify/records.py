"""Attestation, manifest and software list of a release, and whether they describe the same bytes."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalog.trust.attestation import open_attestation, source_of
from kfm_pipelines.catalog.trust.environment import listed_versions
from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.result import Check
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stores.layout import Layout

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

MANIFEST_SCHEMA = "run-manifest-v1.schema.json"


def read_statement(tree: PublishedTree, path: str) -> dict[str, Any]:
    statement, key = open_attestation(path, tree.read(path), tree.trust.keys)
    tree.trust.used.add(key.key_id)
    return statement


def check_manifest_schema(path: str, manifest: Mapping[str, Any]) -> Iterator[Check]:
    from jsonschema.exceptions import best_match

    error = best_match(_manifest_validator().iter_errors(manifest))
    where = "" if error is None else "/".join(str(part) for part in error.absolute_path) or "the top level"
    yield Check("manifest keeps to its schema", path, ok=error is None, found=where and f"broken at {where}")


def check_manifest_agreement(
    path: str, manifest: Mapping[str, Any], statement: Mapping[str, Any], item: Mapping[str, Any]
) -> Iterator[Check]:
    properties, asset = item["properties"], item["assets"]["data"]
    definition = statement["predicate"]["buildDefinition"]
    external, policy = definition["externalParameters"], definition["internalParameters"]["policy"]
    output = manifest["outputs"]["data.parquet"]
    dependencies, commit = definition["resolvedDependencies"], manifest["source"]["commit"]
    pairs = {
        "key": (manifest["key"], properties["kfm:key"], external["key"]),
        "dataset": (manifest["dataset"], properties["kfm:dataset"], external["dataset"]),
        "transform version": (
            manifest["transform_version"],
            properties["kfm:transform_version"],
            external["transformVersion"],
        ),
        "config digest": (manifest["config"]["sha256"], external["config"]["sha256"]),
        "policy": (manifest["policy"]["name"], properties["kfm:policy"], policy["name"]),
        "policy digest": (manifest["policy"]["sha256"], policy["sha256"]),
        "inputs hash": (manifest["inputs_hash"], properties["kfm:inputs_hash"]),
        "late inputs": (
            [one["uri"] for one in manifest["inputs"] if one.get("late")],
            [link["href"] for link in item["links"] if link.get("kfm:late")],
        ),
        "number of late inputs": (
            sum(one.get("late", False) for one in manifest["inputs"]),
            properties.get("kfm:late_inputs", 0),
        ),
        "rows": (output["rows"], properties["table:row_count"]),
        "size": (output["size"], asset["file:size"]),
        "inputs": (
            [(one["uri"], one["digest"]) for one in manifest["inputs"]],
            [(one["uri"], one["digest"]) for one in dependencies[: len(manifest["inputs"])]],
        ),
        "source commit": ((commit, commit and manifest["source"]["dirty"]), source_of(statement)),
        "list of software": (
            manifest["environment"]["sbom"]["sha256"],
            next((one["digest"]["sha256"] for one in dependencies if one.get("name") == "sbom"), None),
        ),
    }
    differing = [name for name, values in pairs.items() if any(value != values[0] for value in values)]
    found = f"differs from Item or attestation: {', '.join(differing)}" if differing else ""
    yield Check("manifest, Item and attestation agree", path, ok=not differing, found=found)


def check_outputs(path: str, manifest: Mapping[str, Any], subjects: Mapping[str, str]) -> Iterator[Check]:
    """Manifest and attestation must name the same digests."""
    outputs = {output["sha256"] for output in manifest["outputs"].values()}
    attested = {digest for name, digest in subjects.items() if name != path}
    yield Check("manifest names what is attested", path, ok=outputs == attested)


def check_sbom(tree: PublishedTree, manifest: Mapping[str, Any]) -> Iterator[Check]:
    digest = manifest["environment"]["sbom"]["sha256"]
    path = Layout("").document(digest)
    found, _ = tree.digest_and_size(path)
    yield Check("list of software, checksum", path, ok=found == digest)
    listed = listed_versions(tree.read(path))
    yield Check("list of software can be read", path, ok=bool(listed), found=f"{len(listed)} components")


def check_masking_notice(path: str, manifest: Mapping[str, Any], item: Mapping[str, Any]) -> Iterator[Check]:
    """The Item of masked data must state that it is masked, and under which policy."""
    properties = item["properties"]
    stated = bool(properties.get("anon:warning")) and "anon:size" in properties and bool(properties.get("kfm:policy"))
    masked = manifest["policy"]["masked"]
    found = "" if masked == stated else "the Item does not state it" if masked else "only the Item states masking"
    yield Check("masking is recorded" if masked else "nothing is masked", path, ok=masked == stated, found=found)


@cache
def _manifest_validator() -> "Draft202012Validator":
    from jsonschema import Draft202012Validator

    schema = json.loads((shipped_path("resources") / "contracts" / MANIFEST_SCHEMA).read_text(encoding="utf-8"))
    return Draft202012Validator(schema)

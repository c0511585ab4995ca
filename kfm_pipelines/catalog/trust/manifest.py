"""The run manifest: what one revision of a key was made from, by which software, under which rules.

It tells the revision, so unlike the Item it depends on what came before; it does not depend on when or where.
"""

from typing import Any

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.facts import PROVENANCE, InputFacts, ReleaseFacts
from kfm_pipelines.declarations.dataset import Dataset


def run_manifest(
    dataset: Dataset, facts: ReleaseFacts, revision: int, *, item_hash: str, provenance_hash: str
) -> bytes:
    environment = facts.environment
    return document_bytes(
        {
            "kind": "kfm-run-manifest",
            "version": 1,
            "key": facts.key,
            "revision": revision,
            "dataset": dataset.dataset,
            "transform_version": dataset.key.transform_version,
            "inputs": [_input(one) for one in facts.inputs],
            "inputs_hash": facts.inputs_hash,
            "config": {"sha256": facts.config},
            "policy": {
                "name": facts.care.policy,
                "sha256": facts.care.policy_digest,
                "masked": facts.care.masked,
            },
            # Nothing is drawn by chance: masks are keyed, so the id of the key is all there is to a seed.
            "seeds": {"masking_key": facts.care.key_id} if facts.care.masked and facts.care.key_id else {},
            "environment": {
                "python": environment.python,
                "implementation": environment.implementation,
                "system": environment.system,
                "machine": environment.machine,
                "sbom": {"sha256": environment.sbom},
            },
            "source": {"commit": environment.commit, "dirty": environment.dirty},
            "gates": list(facts.gates),
            "outputs": {
                "data.parquet": {"sha256": facts.content_hash, "size": facts.size, "rows": facts.rows},
                "item.json": {"sha256": item_hash},
                PROVENANCE: {"sha256": provenance_hash},
            },
        }
    )


def _input(one: InputFacts) -> dict[str, Any]:
    return {
        "uri": one.uri,
        "version": one.version,
        "etag": one.etag,
        "size": one.size,
        "digest": dict(one.digest),
        "event": one.event,
        **({"late": True} if one.late else {}),
    }

"""Run manifest and signed attestation (in-toto, SLSA build level 1, DSSE), without time, host or run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kfm_pipelines.catalog.documents import document_bytes, sha256
from kfm_pipelines.catalog.facts import PROVENANCE, EnvironmentFacts, ReleaseFacts
from kfm_pipelines.catalog.trust.signer import PublicKey, Signer
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken, SignatureRefused

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:kfm:build:dataset-key:v1"
BUILDER = "urn:kfm:builder:kfm-pipelines"
SOURCE = "urn:kfm:source:kfm-pipelines"


@dataclass(frozen=True, slots=True)
class Subjects:
    """Path and digest of each attested file."""

    data: tuple[str, str]
    item: tuple[str, str]
    provenance: tuple[str, str]
    manifest: tuple[str, str]
    files: tuple[tuple[str, str], ...] = ()  # beside the data

    @property
    def digests(self) -> dict[str, str]:
        return dict((self.data, self.item, self.provenance, self.manifest, *self.files))


def sign_attestation(dataset: Dataset, facts: ReleaseFacts, subjects: Subjects, signer: Signer) -> bytes:
    from securesystemslib.dsse import Envelope

    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.digests.items()],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "key": facts.key,
                    "dataset": dataset.dataset,
                    "transformVersion": dataset.key.transform_version,
                    "config": {"sha256": facts.config},
                },
                "internalParameters": {"policy": {"name": facts.care.policy, "sha256": facts.care.policy_digest}},
                "resolvedDependencies": [
                    *(
                        {"uri": one.uri, "digest": dict(one.digest)}
                        | ({"annotations": {"version": one.version}} if one.version else {})
                        for one in facts.inputs
                    ),
                    *_source(facts.environment),
                    {"name": "sbom", "digest": {"sha256": facts.environment.sbom}},
                ],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }
    refuse_unless_statement(statement)
    envelope = Envelope(document_bytes(statement), PAYLOAD_TYPE, {})
    envelope.sign(signer.envelope_signer)
    return document_bytes(envelope.to_dict())


def open_attestation(path: str, data: bytes, keys: Mapping[str, PublicKey]) -> tuple[dict[str, Any], PublicKey]:
    """Returns the statement and the key that signed it. Raises SignatureRefused or IntegrityBroken."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict(json.loads(data))
        [key_id] = envelope.signatures
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise IntegrityBroken(f"{path} is not a DSSE envelope with one signature") from None
    if envelope.payload_type != PAYLOAD_TYPE or document_bytes(envelope.to_dict()) != data:
        raise IntegrityBroken(f"{path} is not written as attestations are")
    if key_id not in keys:
        raise SignatureRefused(f"{path} is signed with key {key_id[:16]}, which is not known here")
    try:
        envelope.verify([keys[key_id].envelope_key], 1)
    except VerificationError:
        raise SignatureRefused(f"{path} is not what was signed") from None
    statement = json.loads(envelope.payload)
    refuse_unless_statement(statement)
    return statement, keys[key_id]


def subjects_of(statement: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}


def source_of(statement: Mapping[str, Any]) -> tuple[str | None, bool | None]:
    """Returns the commit, and whether files were changed since, as in a manifest."""
    for one in statement["predicate"]["buildDefinition"]["resolvedDependencies"]:
        if one.get("uri") == SOURCE:
            if "digest" in one:
                return one["digest"]["gitCommit"], False
            return one["annotations"]["commit"], one["annotations"]["dirty"]
    return None, None


def refuse_unless_statement(statement: Mapping[str, Any]) -> None:
    """Checks a statement with the definitions published by in-toto and SLSA."""
    from google.protobuf.json_format import ParseDict, ParseError
    from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as Fields

    try:
        Statement.copy_from_pb(ParseDict(statement, Fields())).validate()
        ParseDict(statement["predicate"], Provenance())
    except (ParseError, ValueError, KeyError) as error:
        raise IntegrityBroken(f"not an in-toto Statement with SLSA provenance: {str(error)[:200]}") from None
    if statement["predicateType"] != PREDICATE_TYPE:
        raise IntegrityBroken(f"its predicate is {statement['predicateType']}, not {PREDICATE_TYPE}")


def _source(environment: EnvironmentFacts) -> list[dict[str, Any]]:
    """A commit is a digest of the code only if nothing was changed since; otherwise it is an annotation."""
    if environment.commit is None:
        return []
    if environment.dirty is False:
        return [{"uri": SOURCE, "digest": {"gitCommit": environment.commit}}]
    return [{"uri": SOURCE, "annotations": {"commit": environment.commit, "dirty": environment.dirty}}]


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
            "inputs": [
                {name: fact for name, fact in asdict(one).items() if name != "late" or fact} for one in facts.inputs
            ],
            "inputs_hash": facts.inputs_hash,
            "config": {"sha256": facts.config},
            "policy": {"name": facts.care.policy, "sha256": facts.care.policy_digest, "masked": facts.care.masked},
            # Masks are keyed, never random, so the id of the key is the only seed.
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
                **{
                    one.file_name: {"sha256": sha256(one.data), "size": len(one.data)}
                    for one in facts.attachments.files
                },
            },
        }
    )

"""Manifests and attestations: valid, signed, and the same for the same release."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.facts import ReleaseFacts
from kfm_pipelines.catalog.trust.attestation import (
    SOURCE,
    Subjects,
    open_attestation,
    refuse_unless_statement,
    run_manifest,
    sign_attestation,
    subjects_of,
)
from kfm_pipelines.errors import IntegrityBroken, SignatureRefused
from kfm_pipelines.operations.verify.records import check_manifest_agreement
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.catalog.release import ENVIRONMENT, FACTS, FORGER, KEYS, SIGNER, STREAMFLOW, item_of

SUBJECTS = Subjects(("data", "a" * 64), ("item", "b" * 64), ("provenance", "c" * 64), ("manifest", "d" * 64))
ENVELOPE = sign_attestation(STREAMFLOW, FACTS, SUBJECTS, SIGNER)


def test_an_attestation_lists_inputs_source_and_software() -> None:
    statement, key = open_attestation("it", ENVELOPE, KEYS)
    assert key == SIGNER.public
    assert subjects_of(statement) == SUBJECTS.digests
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["key"] == FACTS.key
    assert definition["resolvedDependencies"] == [
        {"uri": FACTS.inputs[0].uri, "digest": {"sha256": "1" * 64}},
        {"uri": "urn:kfm:source:kfm-pipelines", "digest": {"gitCommit": "3" * 40}},
        {"name": "sbom", "digest": {"sha256": ENVIRONMENT.sbom}},
    ]
    assert statement["predicate"]["runDetails"] == {"builder": {"id": "urn:kfm:builder:kfm-pipelines"}}
    assert sign_attestation(STREAMFLOW, FACTS, SUBJECTS, SIGNER) == ENVELOPE


def test_without_a_checkout_no_commit_is_attested() -> None:
    facts = replace(FACTS, environment=replace(ENVIRONMENT, commit=None, dirty=None))
    statement, _ = open_attestation("it", sign_attestation(STREAMFLOW, facts, SUBJECTS, SIGNER), KEYS)
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [one.get("uri") for one in dependencies] == [FACTS.inputs[0].uri, None]


@pytest.mark.parametrize("dirty", [True, None])
def test_a_commit_with_later_changes_is_only_an_annotation(dirty: bool | None) -> None:
    facts = replace(FACTS, environment=replace(ENVIRONMENT, dirty=dirty))
    statement, _ = open_attestation("it", sign_attestation(STREAMFLOW, facts, SUBJECTS, SIGNER), KEYS)
    [source] = statement["predicate"]["buildDefinition"]["resolvedDependencies"][1:-1]
    assert source == {"uri": SOURCE, "annotations": {"commit": "3" * 40, "dirty": dirty}}


CHECKOUTS = [("3" * 40, False), ("3" * 40, True), ("3" * 40, None), ("4" * 40, True), (None, None), (None, True)]


@pytest.mark.parametrize("attested", CHECKOUTS)
def test_manifest_and_attestation_must_agree_on_the_checkout(attested: tuple[str | None, bool | None]) -> None:
    def with_checkout(checkout: tuple[str | None, bool | None]) -> ReleaseFacts:
        return replace(FACTS, environment=replace(ENVIRONMENT, commit=checkout[0], dirty=checkout[1]))

    statement, _ = open_attestation("it", sign_attestation(STREAMFLOW, with_checkout(attested), SUBJECTS, SIGNER), KEYS)
    item = json.loads(item_of(STREAMFLOW, FACTS))
    for checkout in CHECKOUTS:
        manifest = json.loads(
            run_manifest(STREAMFLOW, with_checkout(checkout), 1, item_hash="b" * 64, provenance_hash="c" * 64)
        )
        [check] = check_manifest_agreement("it", manifest, statement, item)
        same = checkout == attested or (checkout[0], attested[0]) == (None, None)
        assert (check.ok, "source commit" in check.found) == (same, not same), checkout


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    envelope = json.loads(ENVELOPE)
    change(envelope)
    return document_bytes(envelope)


def other_payload(envelope: dict[str, Any]) -> None:
    payload = base64.b64decode(envelope["payload"]).replace(b"a" * 64, b"e" * 64)
    envelope["payload"] = base64.b64encode(payload).decode()


@pytest.mark.parametrize(
    ("envelope", "message"),
    [
        (changed(other_payload), "it is not what was signed"),
        (sign_attestation(STREAMFLOW, FACTS, SUBJECTS, FORGER), "which is not known here"),
        (changed(lambda one: one["signatures"].clear()), "not a DSSE envelope"),
        (changed(lambda one: one.update(payloadType="text/plain")), "not written as attestations are"),
        (changed(lambda one: one.update(note="more")), "not written as attestations are"),
        (ENVELOPE + b"\n", "not written as attestations are"),
        (b"[]", "not a DSSE envelope"),
        (b"{", "not a DSSE envelope"),
    ],
)
def test_a_changed_envelope_is_refused(envelope: bytes, message: str) -> None:
    with pytest.raises((IntegrityBroken, SignatureRefused), match=message):
        open_attestation("it", envelope, KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"subject": []},
        {"subject": [{"name": "data"}]},
        {"predicateType": "https://example.org/other"},
        {"predicate": {"buildDefinition": {"unheardOf": "x"}}},
        {"unheardOf": "x"},
    ],
)
def test_an_invalid_statement_is_refused(change: dict[str, Any]) -> None:
    statement, _ = open_attestation("it", ENVELOPE, KEYS)
    refuse_unless_statement(statement)
    with pytest.raises(IntegrityBroken):
        refuse_unless_statement(statement | change)


def test_a_manifest_keeps_to_its_schema() -> None:
    schema = json.loads((shipped_path("resources") / "contracts" / "run-manifest-v1.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    judge = Draft202012Validator(schema)
    manifest = json.loads(run_manifest(STREAMFLOW, FACTS, 1, item_hash="b" * 64, provenance_hash="c" * 64))
    assert list(judge.iter_errors(manifest)) == []
    for name in manifest:
        assert not judge.is_valid({key: value for key, value in manifest.items() if key != name}), name
    assert not judge.is_valid(manifest | {"host": "kfm-1"})
    assert not judge.is_valid(manifest | {"revision": 0})
    [on_time] = manifest["inputs"]
    assert "late" not in on_time
    assert judge.is_valid(manifest | {"inputs": [on_time | {"late": True}]})
    assert not judge.is_valid(manifest | {"inputs": [on_time | {"late": False}]})

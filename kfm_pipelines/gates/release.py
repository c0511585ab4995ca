"""The release gates, over staged bytes: integrity, CARE by the independent verifier, and governance."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.verifier import Evidence, verify
from kfm_pipelines.catalog.documents import asset_of, checksum, read_item, sha256, source_href
from kfm_pipelines.catalog.facts import PROVENANCE
from kfm_pipelines.catalog.prov.constraints import violations
from kfm_pipelines.catalog.prov.document import data_id, iri
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates.verdict import Finding, ReleaseSubject, Rule, Severity, Verdict, error, judge

DATA, ITEM = "data.parquet", "item.json"
ASSETS = {"data": DATA, "provenance": PROVENANCE}  # asset of the Item by staged file
ACTIVITIES = {"masked": "care:Masking", "exempted": "care:Exemption", "open": "care:LeftOpen"}
MAX_VIOLATIONS = 5


def judge_integrity(subject: ReleaseSubject) -> Verdict:
    return judge("integrity", INTEGRITY_RULES, subject)


def judge_care(policy: Policy, dataset: Dataset, evidence: Evidence) -> Verdict:
    """Raises when the verifier cannot tell; the caller then publishes nothing."""
    findings = (
        Finding(breach.rule, Severity.ERROR, breach.subject, breach.expected, breach.measured)
        for breach in verify(policy, dataset, evidence)
    )
    return Verdict("care", tuple(findings))


def judge_governance(subject: ReleaseSubject) -> Verdict:
    return judge("governance", GOVERNANCE_RULES, subject)


def _check_input_etags(subject: ReleaseSubject) -> Iterator[Finding]:
    for one in subject.inputs:
        if one.found_etag is None:
            yield error("input-etag", one.asset_uri, "an object that was fetched", "no record of it")
        elif one.etag is not None and one.etag != one.found_etag:
            yield error("input-etag", one.asset_uri, f"ETag {one.etag}", f"ETag {one.found_etag}")


def _check_input_sizes(subject: ReleaseSubject) -> Iterator[Finding]:
    for one in subject.inputs:
        if one.size is not None and one.size != one.found_size:
            yield error("input-size", one.asset_uri, f"{one.size} bytes", f"{one.found_size} bytes")


def _check_judged_bytes(subject: ReleaseSubject) -> Iterator[Finding]:
    found = sha256(subject.staged.get(DATA, b""))
    if found != subject.judged:
        yield error("judged-bytes", DATA, f"the bytes judged, {subject.judged[:12]}", found[:12])


def _check_staged_digests(subject: ReleaseSubject) -> Iterator[Finding]:
    for name in sorted({*subject.digests, *subject.staged}):
        expected = subject.digests.get(name, "")[:12] or "no such file"
        found = sha256(subject.staged[name])[:12] if name in subject.staged else "no such file"
        if expected != found:
            yield error("staged-digest", name, expected, found)


def _check_item_agrees(subject: ReleaseSubject) -> Iterator[Finding]:
    for asset, name in ASSETS.items():
        stated = asset_of(item_of(subject), asset)
        data = subject.staged.get(name, b"")
        for fact, expected in (("file:checksum", checksum(sha256(data))), ("file:size", len(data))):
            if stated.get(fact) != expected:
                yield error("item-agrees", f"{asset} {fact}", str(expected), str(stated.get(fact))[:80])


def item_of(subject: ReleaseSubject) -> Mapping[str, Any]:
    return _parse_item(subject.staged.get(ITEM))


_parse_item = lru_cache(maxsize=1)(read_item)  # every rule asks for the Item of the release being judged


_INPUT_CHANGED = "The object changed after its event: upload it again, which sends a new event."
_STAGED_FILE_CHANGED = "What is staged is not what was judged: redrive, which stages it again; if it recurs, report it."
INTEGRITY_RULES: tuple[Rule[ReleaseSubject], ...] = (
    Rule("input-etag", _check_input_etags, _INPUT_CHANGED),
    Rule("input-size", _check_input_sizes, _INPUT_CHANGED),
    Rule("judged-bytes", _check_judged_bytes, _STAGED_FILE_CHANGED),
    Rule("staged-digest", _check_staged_digests, _STAGED_FILE_CHANGED),
    Rule("item-agrees", _check_item_agrees, _STAGED_FILE_CHANGED),
)


def _check_policy_applied(subject: ReleaseSubject) -> Iterator[Finding]:
    """Checks what the Item states, because readers rely on that."""
    properties = _properties(subject)
    stated = properties.get("kfm:policy")
    if stated != subject.policy:
        yield error("policy-applied", "Item", f"policy {subject.policy}", f"policy {stated}"[:200])
    for fact, when in (("anon:warning", "masked"), ("kfm:exemption", "exempted")):
        if (fact in properties) != (subject.care == when):
            expected = f"{fact} {'present' if subject.care == when else 'absent'}, because it is {subject.care}"
            yield error("policy-applied", "Item", expected, "present" if fact in properties else "absent")


def _check_policy_verified(subject: ReleaseSubject) -> Iterator[Finding]:
    if subject.verified != subject.digest:
        found = f"release {subject.verified[:12]}" if subject.verified else "none"
        yield error("policy-verified", "release", f"a green care verdict on {subject.digest[:12]}", found)


def _check_licence(subject: ReleaseSubject) -> Iterator[Finding]:
    licence = subject.dataset.licence
    stated = _properties(subject).get("license")
    if stated != licence.id:
        yield error("licence", "Item", licence.id, str(stated)[:80])
    links = [link.get("href") for link in item_of(subject).get("links", []) if link.get("rel") == "license"]
    if links != [licence.url]:
        yield error("licence", "Item", f"one link to {licence.url}", ", ".join(map(str, links))[:200] or "no link")


def _check_sovereignty(subject: ReleaseSubject) -> Iterator[Finding]:
    declared = subject.dataset.sovereignty
    expected = declared.model_dump() if declared else None
    if _properties(subject).get("kfm:sovereignty") != expected:
        wanted = "the declared nations and notice" if expected else "no sovereignty statement"
        yield error("sovereignty", "Item", wanted, "something else, or nothing")


def _check_provenance_complete(subject: ReleaseSubject) -> Iterator[Finding]:
    """Every input must lead to the table that the policy was applied to, and only that activity to the output."""
    graph = _graph(subject)
    kind = ACTIVITIES[subject.care]
    activities = [node for node in graph.values() if kind in _as_list(node.get("@type"))]
    if len(activities) != 1:
        yield error("provenance-complete", PROVENANCE, f"one activity {kind}", str(len(activities)))
        return
    [activity] = activities
    tables = [graph.get(table, {}) for table in _ids(activity.get("prov:used"))]
    computed = [graph.get(made, {}) for table in tables for made in _ids(table.get("prov:wasGeneratedBy"))]
    states = [graph.get(state, {}) for one in computed for state in _ids(one.get("prov:used"))]
    used = {address for state in states for address in _ids(state.get("prov:specializationOf"))}
    for one in subject.inputs:
        if iri(one.asset_uri) not in used:
            yield error("provenance-complete", PROVENANCE, f"that it used {one.asset_uri}", "nothing of it")
    output = graph.get(data_id(subject.judged), {})
    if _ids(output.get("prov:wasGeneratedBy")) != [activity["@id"]]:
        yield error("provenance-complete", PROVENANCE, f"that {subject.judged[:12]} came of it", "nothing of it")


def _check_provenance_consistent(subject: ReleaseSubject) -> Iterator[Finding]:
    for violation in violations(subject.staged.get(PROVENANCE, b""))[:MAX_VIOLATIONS]:
        yield error("provenance-consistent", PROVENANCE, "what PROV allows", violation[:200])


def _check_provenance_linked(subject: ReleaseSubject) -> Iterator[Finding]:
    item = item_of(subject)
    links = {link.get("href") for link in item.get("links", []) if link.get("rel") == "derived_from"}
    missing = [one.asset_uri for one in subject.inputs if source_href(one.asset_uri) not in links]
    if missing:
        yield error("provenance-linked", "Item", f"a link to {missing[0]}", f"{len(missing)} inputs without one")
    href = str(asset_of(item, "provenance").get("href"))
    if sha256(subject.staged.get(PROVENANCE, b"")) not in href:
        yield error("provenance-linked", "Item", "a link to its provenance", "none to these bytes")


def _properties(subject: ReleaseSubject) -> dict[str, Any]:
    properties = item_of(subject).get("properties")
    return properties if isinstance(properties, dict) else {}


def _graph(subject: ReleaseSubject) -> dict[str, dict[str, Any]]:
    try:
        graph = json.loads(subject.staged.get(PROVENANCE, b"{}")).get("@graph", [])
    except (ValueError, RecursionError, AttributeError):
        return {}
    return {str(node.get("@id")): node for node in graph if isinstance(node, dict)}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _ids(values: Any) -> list[str]:
    return [str(one.get("@id")) for one in _as_list(values) if isinstance(one, dict)]


_FIX_WRITER = "The release lacks a required statement: fix the code that writes it, then redrive."
GOVERNANCE_RULES: tuple[Rule[ReleaseSubject], ...] = (
    Rule("policy-applied", _check_policy_applied, _FIX_WRITER),
    Rule("policy-verified", _check_policy_verified, "The verifier has not passed exactly these bytes: redrive."),
    Rule("licence", _check_licence, _FIX_WRITER),
    Rule("sovereignty", _check_sovereignty, _FIX_WRITER),
    Rule("provenance-complete", _check_provenance_complete, _FIX_WRITER),
    Rule("provenance-consistent", _check_provenance_consistent, _FIX_WRITER),
    Rule("provenance-linked", _check_provenance_linked, _FIX_WRITER),
)

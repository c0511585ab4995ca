"""The governance gate: what is staged says under which policy, licence and sovereignty it stands, and where it came
from; and the verifier has seen exactly this."""

import json
from collections.abc import Iterator
from typing import Any

from kfm_pipelines.catalog.documents import asset_of, sha256
from kfm_pipelines.catalog.facts import PROVENANCE
from kfm_pipelines.catalog.prov.constraints import violations
from kfm_pipelines.catalog.prov.document import data_id, iri
from kfm_pipelines.gates.integrity import item_of
from kfm_pipelines.gates.subject import ReleaseSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Verdict, error, judge

ACTIVITIES = {"masked": "care:Masking", "exempted": "care:Exemption", "open": "care:LeftOpen"}
MAX_VIOLATIONS = 5


def judge_governance(subject: ReleaseSubject) -> Verdict:
    return judge("governance", GOVERNANCE_RULES, subject)


def _check_policy_applied(subject: ReleaseSubject) -> Iterator[Finding]:
    """By what the Item says of itself, which is what its readers go by."""
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
    """Every input was used for the table that the policy was applied to, and the output came of just that."""
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
    """Nothing comes of itself, nothing is what it cannot be, nothing is left unsaid that is pointed at."""
    for violation in violations(subject.staged.get(PROVENANCE, b""))[:MAX_VIOLATIONS]:
        yield error("provenance-consistent", PROVENANCE, "what PROV allows", violation[:200])


def _check_provenance_linked(subject: ReleaseSubject) -> Iterator[Finding]:
    """A reader gets from the Item to where it came from."""
    item = item_of(subject)
    links = {link.get("href") for link in item.get("links", []) if link.get("rel") == "derived_from"}
    missing = [one.asset_uri for one in subject.inputs if one.asset_uri not in links]
    if missing:
        yield error("provenance-linked", "Item", f"a link to {missing[0]}", f"{len(missing)} inputs without one")
    href = str(asset_of(item, "provenance").get("href"))
    if sha256(subject.staged.get(PROVENANCE, b"")) not in href:
        yield error("provenance-linked", "Item", "a link to its provenance", "none to these bytes")


def _properties(subject: ReleaseSubject) -> dict[str, Any]:
    properties = item_of(subject).get("properties")
    return properties if isinstance(properties, dict) else {}


def _graph(subject: ReleaseSubject) -> dict[str, dict[str, Any]]:
    """The nodes by their names."""
    try:
        graph = json.loads(subject.staged.get(PROVENANCE, b"{}")).get("@graph", [])
    except (ValueError, RecursionError, AttributeError):
        return {}
    return {str(node.get("@id")): node for node in graph if isinstance(node, dict)}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _ids(values: Any) -> list[str]:
    return [str(one.get("@id")) for one in _as_list(values) if isinstance(one, dict)]


_FIX_WRITER = "The release does not say what it has to: mend what writes it, then redrive."
GOVERNANCE_RULES: tuple[Rule[ReleaseSubject], ...] = (
    Rule("policy-applied", _check_policy_applied, _FIX_WRITER),
    Rule("policy-verified", _check_policy_verified, "The verifier has not passed exactly these bytes: redrive."),
    Rule("licence", _check_licence, _FIX_WRITER),
    Rule("sovereignty", _check_sovereignty, _FIX_WRITER),
    Rule("provenance-complete", _check_provenance_complete, _FIX_WRITER),
    Rule("provenance-consistent", _check_provenance_consistent, _FIX_WRITER),
    Rule("provenance-linked", _check_provenance_linked, _FIX_WRITER),
)

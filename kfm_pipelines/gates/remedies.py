"""Remedies for findings, by rule: those of gates come with their rules, those of scans are here."""

from kfm_pipelines.gates.published_release import PUBLISHED_RULES, RESTORE
from kfm_pipelines.gates.quality.table import QUALITY_RULES
from kfm_pipelines.gates.release import GOVERNANCE_RULES, INTEGRITY_RULES
from kfm_pipelines.gates.schema import SCHEMA_RULES

_BY_RULE = {
    **{rule.name: rule.remedy for rule in (*SCHEMA_RULES, *QUALITY_RULES)},
    **{rule.name: rule.remedy for rule in (*INTEGRITY_RULES, *GOVERNANCE_RULES)},
    **{rule.name: rule.remedy for rule in PUBLISHED_RULES},
    "judged": "See in the run's log where the gate failed; fix the declaration, the suite or the gate, then redrive.",
    "published-judged": "See in the scan's log where the gate failed; fix the declaration or the gate, then scan.",
    "item-readable": RESTORE,
    "extent-drift": "A collection is written again. If the database differs, run a full scan and look at the Items.",
}
_SUITE = "Have the data put right and uploaded again, or have the suite in resources/expectations changed by review."
_BY_GATE = {
    "qa": _SUITE,
    "deep": _SUITE,
    "care": "The mask did not do what the policy asks: fix the policy or the mask before publishing anything.",
}


def remedy_of(gate: str, rule: str) -> str:
    return _BY_RULE.get(rule) or _BY_GATE.get(gate, "")

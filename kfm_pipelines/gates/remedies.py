"""What to do about a finding, by the rule that was broken. The gates' rules have theirs with them; those of scans that
are no rule of a gate are here."""

from kfm_pipelines.gates.governance import GOVERNANCE_RULES
from kfm_pipelines.gates.integrity import INTEGRITY_RULES
from kfm_pipelines.gates.published_release import PUBLISHED_RULES, RESTORE
from kfm_pipelines.gates.quality import QUALITY_RULES
from kfm_pipelines.gates.schema import SCHEMA_RULES

_BY_RULE = {
    **{rule.name: rule.remedy for rule in (*SCHEMA_RULES, *QUALITY_RULES)},
    **{rule.name: rule.remedy for rule in (*INTEGRITY_RULES, *GOVERNANCE_RULES)},
    **{rule.name: rule.remedy for rule in PUBLISHED_RULES},
    "judged": "See in the run's log where the gate failed; mend the declaration, the suite or the gate, then redrive.",
    "published-judged": "See in the scan's log where the gate failed; mend the declaration or the gate, then scan.",
    "item-readable": RESTORE,
    "extent-drift": "A collection is written anew. If the database differs, see what a full scan says of the Items.",
}
_SUITE = "Have the data put right and uploaded again, or have the suite in resources/expectations changed by review."
_BY_GATE = {
    "qa": _SUITE,
    "deep": _SUITE,
    "care": "The masking did not do what the policy asks: nothing may be published before the policy or the mask is "
    "mended.",
}


def remedy_of(gate: str, rule: str) -> str:
    return _BY_RULE.get(rule) or _BY_GATE.get(gate, "")

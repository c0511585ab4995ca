"""What catalogs are told about the care taken with a release."""

from collections.abc import Mapping
from typing import Any

from kfm_pipelines.care.governance import Governance, KeyRules
from kfm_pipelines.care.tables import Exemption
from kfm_pipelines.catalog.facts import CareFacts, ExemptionFacts


def care_facts(governance: Governance, rules: KeyRules, measures: Mapping[str, Any]) -> CareFacts:
    policy, extent = rules.policy, governance.oversight.dataset.extent
    methods = tuple(
        f"{sensitivity} {kind}: {rule.method}"
        for sensitivity, classes in sorted(policy.classes.items())
        for kind, rule in classes.rules.items()
    )
    return CareFacts(
        policy=policy.name,
        policy_digest=policy.digest,
        reason=policy.reason,
        authority=governance.authority.name,
        labels=tuple(policy.labels),
        methods=methods,
        key_id=policy.key_id,
        uncertainty_m=measures.get("uncertainty_m"),
        farthest_latitude=max(abs(extent.south), abs(extent.north)) if extent else 0.0,
        exemption=_exemption_facts(rules.exemption) if rules.exemption else None,
    )


def _exemption_facts(exemption: Exemption) -> ExemptionFacts:
    return ExemptionFacts(
        id=exemption.id,
        holder=exemption.signed.holder,
        until=exemption.until.isoformat(),
        reason=str(exemption.signed.statement["reason"]),
        signature=exemption.signed.signature,
    )

"""For every rule of every gate, what keeps it and what breaks it.

REGISTRY has the rules of each gate with their cases; `test_rules` goes through them all. A new gate is one more entry.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfm_pipelines.gates.governance import GOVERNANCE_RULES
from kfm_pipelines.gates.integrity import INTEGRITY_RULES
from kfm_pipelines.gates.published import PUBLISHED_RULES
from kfm_pipelines.gates.quality import QUALITY_RULES
from kfm_pipelines.gates.schema import SCHEMA_RULES
from kfm_pipelines.gates.verdict import Rule
from kfm_pipelines_tests.gates.case import Case
from kfm_pipelines_tests.gates.published_cases import PUBLISHED_CASES
from kfm_pipelines_tests.gates.quality_cases import QUALITY_CASES
from kfm_pipelines_tests.gates.release_cases import GOVERNANCE_CASES, INTEGRITY_CASES
from kfm_pipelines_tests.gates.schema_cases import SCHEMA_CASES

REGISTRY: Mapping[str, tuple[Sequence[Rule[Any]], Sequence[Case[Any]]]] = {
    "schema": (SCHEMA_RULES, SCHEMA_CASES),
    "qa": (QUALITY_RULES, QUALITY_CASES),
    "integrity": (INTEGRITY_RULES, INTEGRITY_CASES),
    "governance": (GOVERNANCE_RULES, GOVERNANCE_CASES),
    "published": (PUBLISHED_RULES, PUBLISHED_CASES),
}

"""Every rule of every gate: accepts what keeps it, finds what breaks it, and nothing else finds that."""

import pytest

from kfm_pipelines.gates.verdict import Finding, Severity, Verdict, judge
from kfm_pipelines_tests.fixtures.gates.case import Case
from kfm_pipelines_tests.fixtures.gates.rule_cases import REGISTRY

CASES = [pytest.param(gate, case, id=f"{gate}-{case}") for gate, (_, cases) in REGISTRY.items() for case in cases]


@pytest.mark.parametrize(("gate", "case"), CASES)
def test_a_rule_finds_what_breaks_it_and_nothing_else(gate: str, case: Case[object]) -> None:
    rules = REGISTRY[gate][0]

    def severities(subject: object, without: str = "") -> list[Severity]:
        kept = [rule for rule in rules if rule.name != without]
        return [finding.severity for finding in judge(gate, kept, subject).findings if finding.rule == case.rule]

    assert severities(case.passing) == []
    assert severities(case.failing) == [case.severity]
    assert judge(gate, rules, case.failing).passed is (case.severity is not Severity.ERROR)
    assert severities(case.failing, without=case.rule) == []


@pytest.mark.parametrize("gate", REGISTRY)
def test_every_rule_has_a_case_and_a_remedy_and_is_listed_in_the_verdict(gate: str) -> None:
    rules, cases = REGISTRY[gate]
    assert {case.rule for case in cases} == {rule.name for rule in rules}
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.remedy.endswith("."), rule.name
        assert len(rule.remedy) > 40, rule.name
        assert "\n" not in rule.remedy
    # Rules about rasters, scenes or topology concern only some datasets; each has a case that lists it.
    listed = {name for case in cases for name in judge(gate, rules, case.passing).rules}
    assert listed == {rule.name for rule in rules}
    general = tuple(rule.name for rule in rules if rule.concerns is None)
    assert judge(gate, rules, cases[0].passing).rules == general


def test_a_long_list_of_errors_is_cut_short_in_the_reason() -> None:
    findings = tuple(Finding("rule", Severity.ERROR, f"column {n}", "this", "that") for n in range(5))
    reason = Verdict("schema", findings).reason
    assert reason.endswith("column 2: expected this, found that (and 2 more)")
    assert "column 3" not in reason

"""Every rule of every gate: silent where it is kept, heard where it is broken, and missed when it is left out."""

from collections.abc import Sequence
from typing import Any

import pytest

from kfm_pipelines.gates.verdict import Rule, Severity, judge
from kfm_pipelines_tests.fixtures.gates.case import Case
from kfm_pipelines_tests.fixtures.gates.rule_cases import REGISTRY

CASES = [pytest.param(gate, case, id=f"{gate}-{case}") for gate, (_, cases) in REGISTRY.items() for case in cases]
each_case = pytest.mark.parametrize(("gate", "case"), CASES)
each_gate = pytest.mark.parametrize("gate", REGISTRY)


def severities(gate: str, rules: Sequence[Rule[Any]], rule: str, subject: object) -> list[Severity]:
    return [finding.severity for finding in judge(gate, rules, subject).findings if finding.rule == rule]


def assert_found(gate: str, rules: Sequence[Rule[Any]], case: Case[Any]) -> None:
    assert severities(gate, rules, case.rule, case.failing) == [case.severity]


@each_case
def test_what_keeps_the_rule_is_not_found(gate: str, case: Case[Any]) -> None:
    assert severities(gate, REGISTRY[gate][0], case.rule, case.passing) == []


@each_case
def test_what_breaks_the_rule_is_found(gate: str, case: Case[Any]) -> None:
    rules = REGISTRY[gate][0]
    assert_found(gate, rules, case)
    assert judge(gate, rules, case.failing).passed is (case.severity is not Severity.ERROR)


@each_case
def test_without_the_rule_it_would_not_be_found(gate: str, case: Case[Any]) -> None:
    others = [rule for rule in REGISTRY[gate][0] if rule.name != case.rule]
    assert len(others) == len(REGISTRY[gate][0]) - 1
    with pytest.raises(AssertionError):
        assert_found(gate, others, case)


@each_gate
def test_every_rule_has_a_case(gate: str) -> None:
    rules, cases = REGISTRY[gate]
    assert {case.rule for case in cases} == {rule.name for rule in rules}


@each_gate
def test_every_rule_says_what_to_do(gate: str) -> None:
    for rule in REGISTRY[gate][0]:
        assert rule.remedy.endswith("."), rule.name
        assert len(rule.remedy) > 40, rule.name
        assert "\n" not in rule.remedy


@each_gate
def test_a_verdict_names_every_rule_that_was_looked_at(gate: str) -> None:
    rules, cases = REGISTRY[gate]
    assert judge(gate, rules, cases[0].passing).rules == tuple(rule.name for rule in rules)

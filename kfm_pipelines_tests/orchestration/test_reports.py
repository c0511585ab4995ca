"""What a check tells: which keys are red first, whatever else there is to tell."""

import dagster as dg

from kfm_pipelines.gates import Finding, Severity, Verdict
from kfm_pipelines.operations.handoff import Judgement
from kfm_pipelines.orchestration.reports import check_result


def judgement(key: str, *severities: Severity, gate: str = "qa") -> Judgement:
    findings = [Finding(f"rule-{n}", severity, "column", "this", "that") for n, severity in enumerate(severities)]
    return Judgement(key, Verdict(gate, tuple(findings)))


def told(*judgements: Judgement) -> list[tuple[str, str]]:
    table = check_result("qa", judgements).metadata["findings"]
    assert isinstance(table, dg.TableMetadataValue)
    return [(str(record.data["key"]), str(record.data["severity"])) for record in table.records]


def test_no_key_hides_another() -> None:
    many = judgement("a", *[Severity.WARN] * 30, *[Severity.ERROR] * 30)
    shown = told(many, judgement("b", Severity.WARN), judgement("c", Severity.INFO, Severity.ERROR))
    assert shown[:3] == [("a", "error"), ("c", "error"), ("b", "warn")]
    assert len(shown) == 50
    assert check_result("qa", [many]).metadata["findings_in_all"] == dg.IntMetadataValue(60)


def test_a_check_says_how_many_keys_are_red() -> None:
    red, green = judgement("a", Severity.ERROR), judgement("b", Severity.WARN)
    assert check_result("qa", [red, green]).description == "1 of 2 keys are red"
    assert check_result("qa", [green]).description == "1 keys are green"
    assert check_result("qa", [judgement("a", gate="schema")]).description == "no key came as far as this gate"

"""Rules and dashboard use emitted metrics, match the objectives, and link runbooks that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm_pipelines.operations.status.objectives import error_budget, format_prometheus_duration, load_objectives
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.telemetry.metrics.names import METRICS
from kfm_pipelines_tests.fixtures.telemetry.alert_rules import RULES, alerts, rules
from kfm_pipelines_tests.fixtures.telemetry.expressions import same, strangers

ROOT = Path(__file__).parents[3]
DASHBOARD = shipped_path("resources") / "dashboards" / "kfm.json"
PROMISED = load_objectives(shipped_path("resources"))


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def data_panels() -> list[dict[str, Any]]:
    return [panel for panel in panels() if panel["type"] != "row"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_uses_emitted_metrics(rule: dict[str, Any]) -> None:
    assert strangers(rule["expr"]) == []


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("messages_total > 0", ["messages_total"]),
        ('rate(retry_attempts_total{queue="q"}[5m])', ["retry_attempts_total{queue}"]),
        ("sum by (flavour) (pipeline_success)", ["flavour"]),
        ("pipeline_success / on (flavour) row_delta_pct", ["flavour"]),
        ("processing_latency_seconds", ["processing_latency_seconds"]),
        ("max_over_time(nothing[1h:5m])", ["nothing"]),
    ],
)
def test_unknown_metrics_and_labels_are_found(expression: str, names: list[str]) -> None:
    assert strangers(expression) == names


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}")
def test_an_alert_has_a_severity_and_a_runbook(alert: dict[str, Any]) -> None:
    annotations = alert["annotations"]
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert re.fullmatch(r"docs/runbooks/[a-z-]+\.md", annotations["runbook_url"])
    assert (ROOT / annotations["runbook_url"]).is_file()


def test_every_alert_is_explained_with_its_runbook() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    for alert in alerts():
        runbook = alert["annotations"]["runbook_url"].removeprefix("docs/")
        [row] = [
            line for line in page.splitlines() if line.startswith(f"| `{alert['alert']}` | {_severities(alert)} |")
        ]
        assert f"]({runbook})" in row
    named = set(re.findall(r"`(Kfm[A-Za-z]+)`", page))
    assert named == {alert["alert"] for alert in alerts()}


def _severities(alert: dict[str, Any]) -> str:
    same_name = [one["labels"]["severity"] for one in alerts() if one["alert"] == alert["alert"]]
    return ", ".join(sorted(same_name))


def test_the_rules_match_the_objectives() -> None:
    found = {(rule.get("alert"), rule.get("labels", {}).get("severity")): rule["expr"] for rule in rules()}
    for burn in PROMISED.burn.windows:
        short, long = format_prometheus_duration(burn.short), format_prometheus_duration(burn.long)
        assert same(
            found["KfmErrorBudgetBurn", burn.severity],
            f"kfm:burn_rate:{short} > {burn.factor} and kfm:burn_rate:{long} > {burn.factor} "
            f"and increase(kfm:slo_all:sum[{long}]) >= {PROMISED.burn.events}",
        )
    most = error_budget(PROMISED.objectives.duplicates)
    spike = f"kfm:duplicates:increase1h / (kfm:received:increase1h >= {PROMISED.burn.events}) > {most}"
    assert same(found["KfmDuplicateSpike", "ticket"], spike)
    assert same(found["KfmDoubleApply", "page"], f"double_applies > {PROMISED.double_applies}")


def test_budgets_and_windows_match_the_objectives() -> None:
    recorded = [rule for rule in rules() if "record" in rule]
    budgets = {rule["labels"]["slo"]: rule["expr"] for rule in recorded if rule["record"] == "kfm:slo_budget"}
    percents = {"success": PROMISED.objectives.success, "latency": PROMISED.objectives.latency}
    assert budgets == {name: f"vector({error_budget(percent):g})" for name, percent in percents.items()}
    windows = [rule["record"].rpartition(":")[2] for rule in recorded if rule["record"].startswith("kfm:burn_rate:")]
    assert windows == [format_prometheus_duration(window) for window in PROMISED.windows]
    [slow] = [
        rule["expr"] for rule in recorded if rule["record"] == "kfm:slo_bad:sum" and rule["labels"]["slo"] == "latency"
    ]
    [bound] = re.findall(r'le=~"(\d+)\(\\\\\.0\)\?"', slow)
    assert float(bound) == PROMISED.latency.total_seconds()
    [buckets] = [metric.bounds for metric in METRICS if metric.name == "processing_latency_seconds"]
    assert PROMISED.latency.total_seconds() in buckets


def test_the_page_has_the_same_numbers() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    for burn in PROMISED.burn.windows:
        short, long = format_prometheus_duration(burn.short), format_prometheus_duration(burn.long)
        assert f"| {short} and {long} | {burn.factor:g} | {burn.severity} |" in page
    percents = {name: f"{percent:g} %" for name, percent in PROMISED.objectives}
    for name, percent in percents.items():
        assert re.search(rf"^\| {name} \|.*{percent}", page, re.MULTILINE), name


@pytest.mark.parametrize("panel", data_panels(), ids=lambda panel: panel["title"])
def test_a_panel_is_described_and_uses_emitted_metrics(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        assert strangers(target["expr"]) == []
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= {
            label for metric in METRICS for label in metric.labels
        }


def test_the_dashboard_has_its_rows_and_nothing_overlaps() -> None:
    document = json.loads(DASHBOARD.read_text())
    assert document["schemaVersion"] >= 39
    assert [one["type"] for one in document["templating"]["list"]] == ["datasource"]
    rows = [panel["title"] for panel in panels() if panel["type"] == "row"]
    assert rows == ["At a glance", "Intake", "Work", "Gates and masking", "Time", "Energy", "Telemetry", "Sinks"]
    taken = [
        (x, y)
        for panel in panels()
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_metric_is_on_the_dashboard() -> None:
    asked = " ".join(target["expr"] for panel in data_panels() for target in panel["targets"])
    left_out = {metric.name for metric in METRICS if metric.prometheus not in asked}
    # Derived from others, or not useful over time.
    assert left_out == {
        "event_dedup_hits",
        "event_worker_carbon_g",
        "sqs_fifo.body_hash.length_bytes",
        "watermark_event_time_seconds",
    }


def test_the_rules_are_one_yaml_file_that_prometheus_would_load() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    assert all(set(rule) <= {"record", "alert", "expr", "for", "labels", "annotations"} for rule in rules())

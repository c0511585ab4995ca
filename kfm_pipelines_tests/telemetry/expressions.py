"""What an expression for Prometheus speaks of: metrics, and labels of theirs."""

from collections.abc import Iterator

import promql_parser as promql

from kfm_pipelines.telemetry.metric_names import METRICS
from kfm_pipelines_tests.telemetry.rules import rules

# Of whoever scrapes, and of Prometheus itself.
OF_A_TARGET = {"job", "instance"}
OF_PROMETHEUS = {"ALERTS": {"alertname", "alertstate", "severity"}}


def known() -> dict[str, set[str]]:
    """Every series there can be, with the labels it has."""
    found = dict(OF_PROMETHEUS)
    for metric in METRICS:
        labels = set(metric.labels)
        if metric.kind == "histogram":
            found |= {f"{metric.prometheus}_{part}": labels for part in ("count", "sum")}
            found[f"{metric.prometheus}_bucket"] = labels | {"le"}
        else:
            found[metric.prometheus] = labels
    every = set().union(*found.values())
    return found | {rule["record"]: every | set(rule.get("labels", {})) for rule in rules() if "record" in rule}


def strangers(expression: str) -> list[str]:
    """What the expression names and nobody tells."""
    series, found = known(), list[str]()
    for node in _nodes(promql.parse(expression.replace("$__rate_interval", "5m"))):
        if isinstance(node, promql.VectorSelector):
            found += _strange_selector(node, series)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            found += _strange_labels(node.modifier.labels, series)
        elif isinstance(node, promql.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            found += _strange_labels(node.modifier.matching.labels, series)
    return found


def same(one: str, other: str) -> bool:
    return promql.parse(one).prettify() == promql.parse(other).prettify()


def _strange_selector(selector: promql.VectorSelector, series: dict[str, set[str]]) -> Iterator[str]:
    name = selector.name or ""
    if name not in series:
        yield name or "a selector without a name"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in series[name] | OF_A_TARGET:
            yield f"{name}{{{matcher.name}}}"


def _strange_labels(labels: list[str], series: dict[str, set[str]]) -> list[str]:
    allowed = set().union(*series.values()) | OF_A_TARGET
    return [label for label in labels if label not in allowed]


def _nodes(expression: promql.Expr) -> list[promql.Expr]:
    found: list[promql.Expr] = []

    def visit(node: promql.Expr) -> bool:
        found.append(node)
        return True

    promql.walk(expression, visit)
    return found

"""The section of `kfm status` about the last hour, from the metrics of all processes of this home."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kfm_pipelines.console.output import console, format_count
from kfm_pipelines.telemetry.metrics.reader import Totals, read_totals

MINUTES = 60
NO_DATA = "no data yet"
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def last_hour(folder: Path, now: datetime) -> dict[str, Any]:
    totals = read_totals(folder, now - timedelta(minutes=MINUTES))
    return {
        "minutes": MINUTES,
        "messages": _messages(totals),
        "keys": _keys(totals),
        "latency_seconds": _latency(totals),
        "queue_depth": totals.by_label("queue_depth_messages", "queue"),
        "dead_letters": {
            "new": totals.counter("event_dlq_count"),
            "waiting": totals.by_label("dead_letter_count", "queue"),
        },
        "watermark_lag_seconds": totals.by_label("watermark_lag_seconds", "stream"),
        "freshness_min": totals.by_label("freshness_min", "dataset"),
        "freshness_target_min": totals.by_label("freshness_target_min", "dataset"),
        "burn_rate": _burn_rates(totals),
        "left_out": {
            "notices": totals.counter("notices_unwanted_total"),
            "records": totals.by_label("records_left_out_total", "reason"),
        },
        "energy": {
            "watt_seconds": totals.by_label("event_worker_energy_ws", "method"),
            "carbon_grams": totals.by_label("event_worker_carbon_g", "method"),
            "cost_usd": totals.counter("cost_usd"),
        },
        "dropped": totals.by_label("telemetry_dropped_total", "signal"),
        "unreadable_lines": totals.unreadable,
    }


def display_last_hour(document: Mapping[str, Any]) -> None:
    console.print("the last hour", style="bold")
    sections = {title: list(lines) for title, lines in _sections(document)}
    if not any(sections.values()):
        console.print(f"  {NO_DATA}")
        return
    for title, lines in sections.items():
        for number, line in enumerate(lines or [NO_DATA]):
            console.print(f"  {title if number == 0 else '':<10} {line}")


def _sections(document: Mapping[str, Any]) -> Iterator[tuple[str, Iterable[str]]]:
    yield "messages", _format_messages(document["messages"])
    yield "keys", _format_keys(document["keys"])
    latencies = {
        name.replace("_", " "): ", ".join(f"{q.upper()} {_format_duration(one[q]):>6}" for q in _QUANTILES)
        for name, one in document["latency_seconds"].items()
    }
    yield "latency", _align_rows(latencies)
    yield "depth", _align_rows({queue: f"{depth:.0f}" for queue, depth in document["queue_depth"].items()})
    letters = document["dead_letters"]
    counts = f"{letters['new']:.0f} new, {sum(letters['waiting'].values()):.0f} waiting"
    yield "DLQ", [counts] if letters["new"] or letters["waiting"] else []
    yield "lag", _align_rows({name: _format_duration(lag) for name, lag in document["watermark_lag_seconds"].items()})
    yield "fresh", _format_freshness(document["freshness_min"], document["freshness_target_min"])
    yield "burn rate", _align_rows({slo: _format_windows(rates) for slo, rates in document["burn_rate"].items()})
    yield "energy", _format_energy(document["energy"])
    if left_out := list(_format_left_out(document["left_out"])):
        yield "left out", left_out
    if dropped := [f"{number:.0f} {signal}s" for signal, number in document["dropped"].items() if number]:
        yield "dropped", [", ".join(dropped)]


def _messages(totals: "Totals") -> dict[str, Any]:
    received, duplicates = totals.counter("messages_received_total"), totals.counter("messages_duplicate_total")
    return {
        "received": received,
        "per_minute": received / MINUTES,
        "duplicates": duplicates,
        "duplicate_share": duplicates / received if received else None,
        "recorded": totals.histogram("event_ingest_latency_ms").count,
    }


def _keys(totals: "Totals") -> dict[str, Any]:
    outcomes = totals.by_label("keys_settled_total", "outcome")
    return {
        "published": outcomes.get("APPLIED", 0.0),
        "published_per_minute": outcomes.get("APPLIED", 0.0) / MINUTES,
        "unchanged": outcomes.get("SKIPPED", 0.0),
        "failed": outcomes.get("FAILED", 0.0),
        "retries": totals.counter("retry_attempts_total"),
    }


def _latency(totals: "Totals") -> dict[str, dict[str, float | None]]:
    """Lists end-to-end latency first, then the stages."""
    stages = {labels[0] for labels, _ in totals.series("processing_latency_seconds")}
    ordered = ["end_to_end", "queue", *sorted(stages - {"end_to_end", "queue"})]
    series = {name: (totals.histogram("processing_latency_seconds", stage=name), 1) for name in ordered}
    series["ingest"] = (totals.histogram("event_ingest_latency_ms"), 1000)
    return {
        name: {"count": one.count} | {q: (one.quantile(share) or 0.0) / unit for q, share in _QUANTILES.items()}
        for name, (one, unit) in series.items()
        if one.count
    }


def _burn_rates(totals: "Totals") -> dict[str, dict[str, Any]]:
    rates: dict[str, dict[str, Any]] = {}
    for (slo, window), rate in totals.series("error_budget_burn_rate"):
        rates.setdefault(slo, {})[window] = rate
    return rates


def _format_messages(messages: Mapping[str, Any]) -> Iterator[str]:
    if messages["received"]:
        yield (
            f"{messages['received']:.0f}, {messages['per_minute']:.1f} a minute; {messages['duplicates']:.0f} "
            f"duplicates ({messages['duplicate_share']:.1%}); {messages['recorded']} events recorded"
        )


def _format_keys(keys: Mapping[str, float]) -> Iterator[str]:
    if any(keys.values()):
        yield (
            f"{keys['published']:.0f} published, {keys['published_per_minute']:.1f} a minute; "
            f"{keys['unchanged']:.0f} unchanged, {keys['failed']:.0f} failed, {keys['retries']:.0f} retried"
        )


def _format_left_out(left_out: Mapping[str, Any]) -> Iterator[str]:
    """Says what was acknowledged and is not work for anybody."""
    if count := int(left_out["notices"]):
        yield f"{format_count(count, 'notice')} of providers that no dataset takes"
    for reason, count in sorted(left_out["records"].items()):
        if count:
            yield f"{format_count(int(count), 'record')}: {reason}"


def _format_freshness(freshness: Mapping[str, float], targets: Mapping[str, float]) -> list[str]:
    rows = {}
    for name in sorted({*freshness, *targets}):
        target = f", at most {_format_duration(60 * targets[name])}" if name in targets else ""
        rows[name] = (_format_duration(60 * freshness[name]) if name in freshness else NO_DATA) + target
    return _align_rows(rows)


def _format_windows(rates: Mapping[str, float]) -> str:
    """Lists the shortest window first: 5m, 30m, 1h."""
    windows = sorted(rates, key=lambda window: ("smhd".find(window[-1:]), len(window), window))
    return ", ".join(f"{window} {rates[window]:.1f}" for window in windows)


def _format_energy(energy: Mapping[str, Any]) -> Iterator[str]:
    """Never adds measured and estimated energy."""
    for method, watt_seconds in energy["watt_seconds"].items():
        yield f"{watt_seconds:.3g} Ws, {energy['carbon_grams'].get(method, 0):.2g} g CO2e, {method}"
    if energy["cost_usd"] >= 1e-6:
        yield f"{energy['cost_usd']:.6f}".rstrip("0") + " USD, estimated"


def _align_rows(rows: Mapping[str, str]) -> list[str]:
    width = max((len(name) for name in rows), default=0)
    return [f"{name:<{width}}  {value}" for name, value in rows.items()]


def _format_duration(seconds: float) -> str:
    if abs(seconds) < 1:
        return f"{1000 * seconds:.0f} ms"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"

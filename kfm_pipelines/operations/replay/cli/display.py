"""What `kfm replay` displays: plans, canary results and progress."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.filesize import decimal

from kfm_pipelines.console.output import console, format_count, format_time, print_table
from kfm_pipelines.operations.replay.first_keys import CanaryResult
from kfm_pipelines.operations.replay.plan import Plan
from kfm_pipelines.operations.replay.register import RegistrationResult
from kfm_pipelines.operations.replay.status import ReplayStatus
from kfm_pipelines.state.replays import PlannedKey
from kfm_pipelines.text import make_printable

MAX_ROWS = 10
BAR_WIDTH = 30
SMALLEST_AMOUNT = 0.001


def plan_document(plan: Plan, registration: RegistrationResult | None) -> dict[str, Any]:
    return {
        "replay": plan.id,
        "dataset": plan.dataset,
        "mode": plan.mode,
        "keys": [{"key": one.key, "why": one.why, "source": one.source} for one in plan.chosen],
        "left_out": [{"key": one.key, "why": one.why} for one in plan.left_out],
        "estimate": plan.estimate.as_document(),
        "config_digest": plan.config_digest,
        "config": dict(plan.config),
        "registered": registration and registration_document(registration),
    }


def registration_document(registration: RegistrationResult) -> dict[str, Any]:
    return {
        "objects": registration.objects,
        "events": registration.events,
        "windows": len(registration.keys),
        "new_keys": registration.new_keys,
        "due": list(registration.due),
    }


def display_registration(registration: RegistrationResult, note: str | None = None) -> None:
    console.print(
        f"registered {format_count(registration.objects, 'object')}, {registration.events} new, and "
        f"{format_count(len(registration.keys), 'window')}, {registration.new_keys} new"
    )
    if registration.due:
        keys = format_count(len(registration.due), "key")
        console.print(f"requested {keys} of open windows: they run when the dataset's due rule lets them")
    if note:
        console.print(note)


def display_plan(plan: Plan, registration: RegistrationResult | None) -> None:
    if registration:
        display_registration(registration)
    keys = format_count(len(plan.chosen), "key")
    console.print(f"replay {plan.id}: {plan.mode} {keys} of {plan.dataset}", style="bold")
    _display_keys(plan.chosen, "why")
    if plan.left_out:
        console.print(f"left out: {format_count(len(plan.left_out), 'key')}")
        _display_keys(plan.left_out, "why not")
    one = plan.estimate
    size = "unknown" if one.bytes is None else decimal(round(one.bytes))
    console.print(
        f"estimated cost: CPU time {_format_amount(one.cpu_seconds, 's')}, time in one process "
        f"{_format_amount(one.wall_seconds, 's')}, size {size}, energy {_format_amount(one.energy_ws, 'Ws')}, "
        f"emissions {_format_amount(one.carbon_grams, 'g CO2e')} "
        f"(from {format_count(one.measured_keys, 'measured key')})"
    )
    console.print(f"configuration: {plan.config_digest}")
    console.print(f"run it with: kfm replay run {plan.id}")


def display_canary_results(results: Sequence[CanaryResult]) -> None:
    rows = [(one.key, _format_comparison(one.report), "; ".join(one.faults[:3]) or "good") for one in results]
    print_table(["first keys", "comparison", "faults"], rows)


def display_status(status: ReplayStatus, details: dict[str, Any]) -> None:
    one = status.replay
    start, end = (f"{datetime.fromisoformat(one.plan[name]):%Y-%m-%d %H:%MZ}" for name in ("from", "to"))
    console.print(f"replay {one.id}: {one.mode} {one.dataset}, {start} to {end}", style="bold")
    done = BAR_WIDTH * status.decided // status.total if status.total else 0
    console.print(f"  [{'#' * done}{'.' * (BAR_WIDTH - done)}] {status.decided} of {status.total} keys")
    console.print(f"  state      {one.state}" + (f": {make_printable(one.note)}" if one.note else ""))
    outcomes = ", ".join(f"{number} {outcome.lower()}" for outcome, number in status.outcomes.items())
    without = f"; {status.without_data} without data" if status.without_data else ""
    console.print(f"  outcomes   {outcomes or 'none yet'}{without}")
    cpu_time = _format_amount(details["cpu_seconds"], "s")
    console.print(f"  cost       CPU time {cpu_time}; {_format_energy(details['energy'])}")
    for key in details["quarantined"][:MAX_ROWS]:
        attempts = format_count(key["attempts"], "attempt")
        console.print(f"  quarantine {key['key']} after {attempts}: {make_printable(key['reason'])}")
    for move in details["moves"][-MAX_ROWS:]:
        detail = ", ".join(f"{name} {value}" for name, value in move["detail"].items() if value is not None)
        line = f"  {format_time(move['at'])}  {move['what']} by {move['actor']}"
        console.print(f"{line}: {make_printable(detail)}" if detail else line)


def display_list(latest: Sequence[ReplayStatus]) -> None:
    if not latest:
        console.print("no replay has been planned yet")
    rows = [
        (row.id, row.dataset, row.mode, row.state, f"{one.decided} of {one.total}", row.created_at, row.note)
        for one in latest
        for row in [one.replay]
    ]
    print_table(["replay", "dataset", "mode", "state", "keys", "planned", "note"], rows)


def _display_keys(keys: Sequence[PlannedKey], heading: str) -> None:
    print_table(["key", heading], [(one.key, one.why) for one in keys[:MAX_ROWS]])
    if len(keys) > MAX_ROWS:
        reasons = Counter(one.why for one in keys).most_common(5)
        console.print("  in all: " + "; ".join(f"{number} {why}" for why, number in reasons))


def _format_comparison(report: dict[str, Any]) -> str:
    if report.get("identical"):
        return "identical"
    if "published_rows" in report:
        return f"rows {report['published_rows']} → {report['candidate_rows']}"
    return "compared" if "rows" in report else "nothing to compare with"


def _format_energy(spent: Sequence[dict[str, Any]]) -> str:
    parts = [
        f"{one['method']} energy {_format_amount(one['watt_seconds'], 'Ws')}, emissions "
        f"{_format_amount(one['carbon_grams'], 'g CO2e')}"
        for one in spent
        if one["method"] != "unknown"
    ]
    if len(parts) < len(spent):
        parts.append("energy of a part unknown")
    return "; ".join(parts) or "energy unknown"


def _format_amount(value: float | None, unit: str) -> str:
    """Formats three significant digits without powers of ten."""
    if value is None:
        return "unknown"
    if 0 < value < SMALLEST_AMOUNT:
        return f"less than {SMALLEST_AMOUNT} {unit}"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"

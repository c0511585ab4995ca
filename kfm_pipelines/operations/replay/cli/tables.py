"""What `kfm replay` shows: plans, first keys, how far a replay is."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.output import console, format_time
from kfm_pipelines.operations.replay.first_keys import CanaryResult
from kfm_pipelines.operations.replay.plan import Plan
from kfm_pipelines.operations.replay.register import RegistrationResult
from kfm_pipelines.operations.replay.status import ReplayStatus
from kfm_pipelines.state.replays import PlannedKey
from kfm_pipelines.text import make_printable

MAX_ROWS = 10
BAR_WIDTH = 30
SMALLEST_AMOUNT = 0.001
SIZE_UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}


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
        "registered": {"objects": registration.objects, "events": registration.events, "windows": len(registration.keys),
                       "new_keys": registration.new_keys} if registration else None,
    }  # fmt: skip


def display_plan(plan: Plan, registration: RegistrationResult | None) -> None:
    if registration:
        console.print(
            f"registered {registration.objects} objects, {registration.events} of them new, and {len(registration.keys)} "
            f"windows, {registration.new_keys} of them new"
        )
    console.print(f"replay {plan.id}: {plan.mode} {len(plan.chosen)} keys of {plan.dataset}", style="bold")
    _display_keys(plan.chosen, "why")
    if plan.left_out:
        console.print(f"left out: {len(plan.left_out)} keys")
        _display_keys(plan.left_out, "why not")
    one = plan.estimate
    console.print(
        f"estimated cost: CPU time {_format_seconds(one.cpu_seconds)}, time in one process {_format_seconds(one.wall_seconds)}, "
        f"size {_format_size(one.bytes)}, energy {_format_amount(one.energy_ws, 'Ws')}, emissions "
        f"{_format_amount(one.carbon_grams, 'g CO2e')} (from {one.measured_keys} measured keys)"
    )
    console.print(f"configuration: {plan.config_digest}")
    console.print(f"carry it out with: kfm replay run {plan.id}")


def display_canary_results(results: Sequence[CanaryResult]) -> None:
    if not results:
        return
    table = Table("first keys", "compared", "what is not good", box=SIMPLE_HEAD, pad_edge=False)
    for one in results:
        table.add_row(one.key, _format_comparison(one.report), make_printable("; ".join(one.faults[:3])) or "good")
    console.print(table)


def display_status(status: ReplayStatus, details: dict[str, Any]) -> None:
    one = status.replay
    start, end = (_format_minute(one.plan[name]) for name in ("from", "to"))
    console.print(f"replay {one.id}: {one.mode} {one.dataset}, {start} to {end}", style="bold")
    done = BAR_WIDTH * status.decided // status.total if status.total else 0
    console.print(f"  [{'#' * done}{'.' * (BAR_WIDTH - done)}] {status.decided} of {status.total} keys")
    console.print(f"  state      {one.state}" + (f": {make_printable(one.note)}" if one.note else ""))
    outcomes = ", ".join(f"{number} {outcome.lower()}" for outcome, number in status.outcomes.items())
    without = f"; {status.without_data} without data" if status.without_data else ""
    console.print(f"  outcomes   {outcomes or 'none yet'}{without}")
    console.print(
        f"  cost       CPU time {_format_seconds(details['cpu_seconds'])}; {_format_energy(details['energy'])}"
    )
    for key in details["quarantined"][:MAX_ROWS]:
        console.print(f"  quarantine {key['key']} after {key['attempts']} attempts: {make_printable(key['reason'])}")
    for move in details["moves"][-MAX_ROWS:]:
        said = ", ".join(f"{name} {value}" for name, value in move["detail"].items() if value is not None)
        console.print(
            f"  {format_time(move['at'])}  {move['what']} by {move['actor']}"
            + (f": {make_printable(said)}" if said else "")
        )


def display_list(latest: Sequence[ReplayStatus]) -> None:
    table = Table("replay", "dataset", "mode", "state", "keys", "planned", "note", box=SIMPLE_HEAD, pad_edge=False)
    for one in latest:
        row = one.replay
        keys = f"{one.decided} of {one.total}"
        table.add_row(
            row.id, row.dataset, row.mode, row.state, keys, format_time(row.created_at), make_printable(row.note)
        )
    console.print(table if latest else "no replay was planned yet")


def _display_keys(keys: Sequence[PlannedKey], heading: str) -> None:
    table = Table("key", heading, box=SIMPLE_HEAD, pad_edge=False)
    for one in keys[:MAX_ROWS]:
        table.add_row(one.key, one.why)
    console.print(table)
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
    """Each method for itself."""
    told = [
        f"{one['method']} energy {_format_amount(one['watt_seconds'], 'Ws')}, emissions "
        f"{_format_amount(one['carbon_grams'], 'g CO2e')}"
        for one in spent
        if one["method"] != "unknown"
    ]
    if len(told) < len(spent):
        told.append("energy of a part unknown")
    return "; ".join(told) or "energy unknown"


def _format_minute(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%MZ}"


def _format_amount(value: float | None, unit: str) -> str:
    """Three digits that count, and no powers of ten: less than a thousandth is said to be that."""
    if value is None:
        return "unknown"
    if 0 < value < SMALLEST_AMOUNT:
        return f"less than {SMALLEST_AMOUNT} {unit}"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def _format_seconds(value: float | None) -> str:
    return _format_amount(value, "s")


def _format_size(value: float | None) -> str:
    if value is None:
        return "unknown"
    for unit, one in SIZE_UNITS.items():
        if value >= one:
            return f"{value / one:,.1f} {unit}"
    return f"{value:,.0f} bytes"

"""`kfm dlq`: lists and shows dead letters, redrives them or sets them aside."""

from collections.abc import Callable
from typing import Any

import click

from kfm_pipelines.console.options import Age, StorableText, default_option
from kfm_pipelines.console.output import (
    console,
    display_findings,
    format_count,
    format_time,
    json_option,
    print_table,
    progress,
    respond,
    stderr_console,
)
from kfm_pipelines.console.session import current_session, open_services
from kfm_pipelines.errors import KfmError, RedriveStopped
from kfm_pipelines.operations.dead_letters import redrive as redriving
from kfm_pipelines.operations.dead_letters import redrive_tables, tables
from kfm_pipelines.operations.dead_letters.export import export_letters, find_refused_bytes, letter_record
from kfm_pipelines.operations.dead_letters.redrive import RedriveOptions, RedriveProgress
from kfm_pipelines.operations.dead_letters.tables import TRIAGE_CLASSES, Letter, LetterFilter
from kfm_pipelines.services import Services
from kfm_pipelines.text import make_printable

STATES = click.Choice(["open", "redriving", "quarantined", "closed", "all"])

letters_argument = click.argument("ids", nargs=-1, type=int, metavar="[LETTER]...")
limit_option = default_option(
    "--limit", default=100, type=click.IntRange(1, 100_000), help="At most this many letters."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that choose letters, named after the fields of `LetterFilter`."""
    for option in (
        click.option("--newer-than", "newer_than_seconds", type=Age(), help="Changed within: 15m, 2h, 7d."),
        click.option("--older-than", "older_than_seconds", type=Age(), help="Last changed longer ago than: 15m, 2h."),
        click.option("--key", type=StorableText(), help="Of this key; a trailing * matches the rest."),
        click.option("--dataset", type=StorableText(), help="Of this dataset."),
        click.option("--class", "triage", type=click.Choice(TRIAGE_CLASSES), help="Of this class."),
    ):
        command = option(command)
    return command


@click.group()
def dlq() -> None:
    """Dead letters: refused messages and failed keys."""


@dlq.command("list")
@filter_options
@default_option("--state", default="open", type=STATES)
@default_option("--limit", default=50, type=click.IntRange(1, 10_000))
@json_option
def list_letters(state: str, limit: int, as_json: bool, **filters: Any) -> None:
    """List dead letters, oldest first."""
    states = (*tables.LIVE_STATES, "closed") if state == "all" else (state,)
    chosen = LetterFilter(states=states, **filters)
    with open_services() as services:
        found = tables.find_letters(services.database, chosen, limit)
        counts = tables.count_letters(services.database, chosen)
    letters = [_letter_document(letter) for letter in found]
    document = {"letters": letters, "total": sum(counts.values()), "classes": counts}
    respond(document, lambda: _display_list(found, counts), as_json=as_json)


@dlq.command()
@click.argument("letter", type=int)
@click.option("--payload", is_flag=True, help="Include the message, which may hold data that reviewers may not see.")
@json_option
def show(letter: int, payload: bool, as_json: bool) -> None:
    """Show one dead LETTER: reason, trace, lineage, history, and what redriving it would do."""
    with open_services() as services:
        found = tables.read_letter(services.database, letter)
        record = letter_record(services, found)
        record["redrive_would"] = redriving.describe(services, found)
        record["red_bytes"] = find_refused_bytes(services, found)
    if payload:
        record["body"] = found.body if as_json or found.body is None else repr(found.body)
    respond(record, lambda: _display_record(record), as_json=as_json)


@dlq.command()
@letters_argument
@filter_options
@dry_run_option
@limit_option
@default_option("--rate", default=5.0, type=click.FloatRange(0.01, 1000), help="Letters a second.")
@default_option("--canary", default=3, type=click.IntRange(0), help="Send this many first; stop if one fails again.")
@default_option("--wait", default=300, type=click.IntRange(1), help="Seconds to wait for results.")
@click.option("--work", is_flag=True, help="Do the work in this process, without a daemon.")
@click.option("--resume", type=StorableText(), metavar="ID", help="Continue an interrupted redrive at its own rate.")
@click.option("--stop", type=StorableText(), metavar="ID", help="End a redrive and reopen its undecided letters.")
@json_option
def redrive(
    ids: tuple[int, ...], dry_run: bool, limit: int, resume: str | None, stop: str | None, as_json: bool, **chosen: Any
) -> None:
    """Send dead letters back: the given LETTERs, or those that match."""
    if stop is not None:
        _stop(stop, as_json)
        return
    how = {name: chosen.pop(name) for name in ("rate", "canary", "wait", "work")}
    if resume is None:
        _require_selection(ids, chosen)
    elif dry_run or _has_selection(ids, chosen):
        raise click.UsageError("--resume continues with the letters of that redrive; give no others and no --dry-run")
    wanted = LetterFilter(ids=ids, **chosen)
    with open_services() as services:
        tables.check_open(services.database, ids)
        if dry_run:
            _display_plan(services, tables.find_letters(services.database, wanted, limit), how, as_json)
            return
        redrive_id = resume or redriving.begin(services, wanted, limit=limit, canary=how["canary"], rate=how["rate"])
        if redrive_id is None:
            done, line = RedriveProgress(), "no open letter matches; nothing was done"
        else:
            done = _run_with_progress(services, redrive_id, how, quiet=as_json)
            line = f"redrive {redrive_id}: {done.sent} sent, {done.succeeded} succeeded, {done.failed} failed again"
    document = {"redrive": redrive_id, "sent": done.sent, "succeeded": done.succeeded, "failed": done.failed}
    respond(document, lambda: console.print(line), as_json=as_json, ok=not done.failed)


@dlq.command()
@letters_argument
@filter_options
@click.option("--reason", type=StorableText(), required=True, help="Why it cannot be fixed; kept with the letter.")
@limit_option
@dry_run_option
@json_option
def quarantine(ids: tuple[int, ...], reason: str, limit: int, dry_run: bool, as_json: bool, **filters: Any) -> None:
    """Set dead letters aside for good, with everything known about them."""
    _require_selection(ids, filters)
    if not reason.strip():
        raise click.UsageError("--reason is empty; it is all that explains the decision later")
    wanted = LetterFilter(ids=ids, **filters)
    with open_services() as services:
        tables.check_open(services.database, ids)
        if dry_run:
            found = tables.find_letters(services.database, wanted, limit)
        else:
            found = tables.quarantine(services.database, wanted, reason, limit)
            # Only reports a failure: the letters are quarantined, and the next tick writes their records.
            try:
                export_letters(services)
            except KfmError as error:
                stderr_console.print(f"the records will be written later: {error}", markup=False)
    named = ", ".join(str(letter.id) for letter in found) or "none"
    line = f"{format_count(len(found), 'letter')} {'would be ' * dry_run}quarantined: {named}"
    document = {"quarantined": [letter.id for letter in found], "dry_run": dry_run}
    respond(document, lambda: console.print(line), as_json=as_json)


def _stop(redrive_id: str, as_json: bool) -> None:
    with open_services() as services:
        reopened = redriving.stop(services, redrive_id)
    count = format_count(reopened, "letter")
    line = f"redrive {redrive_id} has ended; {count} {'is' if reopened == 1 else 'are'} open again"
    respond({"redrive": redrive_id, "reopened": reopened}, lambda: console.print(line), as_json=as_json)


def _run_with_progress(services: Services, redrive_id: str, how: dict[str, Any], *, quiet: bool) -> RedriveProgress:
    """Runs the redrive. Prints its id if it ends early, because resuming needs it."""
    total = len(redrive_tables.item_states(services.database, redrive_id))
    try:
        with progress(f"redrive {redrive_id}", total, quiet=quiet) as update:
            options = RedriveOptions(
                float(how["wait"]), _worker(services) if how["work"] else lambda: None, lambda now: update(now.decided)
            )
            return redriving.run_redrive(services, redrive_id, options)
    except RedriveStopped:
        raise
    except (KeyboardInterrupt, KfmError) as stop:
        if total and redrive_id not in str(stop):
            stderr_console.print(
                f"redrive {redrive_id} is not finished; continue with `kfm dlq redrive --resume {redrive_id}`"
            )
        raise


def _worker(services: Services) -> Callable[[], object]:
    from kfm_pipelines.dispatch.worker import work

    session = current_session()
    return lambda: work(services, session.definitions(services.settings.resources), session.chores(), once=True)


def _letter_document(letter: Letter) -> dict[str, Any]:
    return {
        "letter": letter.id,
        "state": letter.state,
        "class": letter.triage,
        "stage": letter.failure_stage,
        "dataset": letter.dataset,
        "key": letter.key,
        "attempts": letter.attempts,
        "changed_at": letter.changed_at,
        "reason": letter.reason,
    }


def _display_list(letters: list[Letter], counts: dict[str, int]) -> None:
    rows = []
    for one in letters:
        about = one.key or one.dataset or (f"queue {one.queue}" if one.queue else "")
        rows.append((one.id, one.changed_at, one.triage, one.failure_stage, about, one.reason))
    print_table(["letter", "changed", "class", "stage", "key or dataset", "reason"], rows)
    total = sum(counts.values())
    classes = ", ".join(f"{count} {name}" for name, count in counts.items())
    listed = f"; the first {len(letters)} are listed" if total > len(letters) else ""
    console.print(format_count(total, "letter") + (f": {classes}" if classes else "") + listed)


def _display_record(record: dict[str, Any]) -> None:
    history, findings, kept = record.pop("history"), record.pop("findings"), record.pop("red_bytes")
    for name, value in record.items():
        if value not in (None, "", [], {}):
            console.print(f"{name.replace('_', ' ')}: {make_printable(str(value))}")
    display_findings(findings)
    if kept:
        console.print(f"refused bytes: {kept['folder']} until {format_time(kept['until'])}", markup=False)
    console.print("history", style="bold")
    for move in history:
        detail = ", ".join(f"{name} {value}" for name, value in move.items() if name not in ("at", "what"))
        console.print(f"  {move['at']}  {move['what']}" + (f": {make_printable(detail)}" if detail else ""))


def _display_plan(services: Services, letters: list[Letter], how: dict[str, Any], as_json: bool) -> None:
    plan = [{**_letter_document(letter), "would": redriving.describe(services, letter)} for letter in letters]
    lines = [f"letter {one['letter']} ({one['class']}): would {one['would']}" for one in plan]
    canary, seconds = min(how["canary"], len(plan)), len(plan) / how["rate"]
    lines.append(
        f"{format_count(len(plan), 'letter')}; the first {canary} as a canary, then {how['rate']:g} a second, "
        f"about {seconds:.0f} s. Nothing was done."
    )
    document = {"dry_run": True, "letters": plan, "canary": how["canary"], "rate": how["rate"]}
    respond(document, lambda: console.print("\n".join(lines)), as_json=as_json)


def _has_selection(ids: tuple[int, ...], filters: dict[str, Any]) -> bool:
    return bool(ids) or any(value is not None for value in filters.values())


def _require_selection(ids: tuple[int, ...], filters: dict[str, Any]) -> None:
    if not _has_selection(ids, filters):
        raise click.UsageError("name letters, or choose them with --class, --dataset, --key or an age")

"""`kfm dlq`: look at what failed, send it again, or set it aside for good."""

from collections.abc import Callable
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.findings import display_findings
from kfm_pipelines.console.options import Age, StorableText
from kfm_pipelines.console.output import console, format_time, json_option, print_json, progress, stderr_console
from kfm_pipelines.console.session import current_session, open_services
from kfm_pipelines.errors import KfmError, RedriveStopped
from kfm_pipelines.operations.dead_letters import redrive as redriving
from kfm_pipelines.operations.dead_letters import redrives, tables
from kfm_pipelines.operations.dead_letters.export import export_letters, letter_record
from kfm_pipelines.operations.dead_letters.redrive import RedriveOptions, RedriveProgress
from kfm_pipelines.operations.dead_letters.remedies import find_refused_bytes
from kfm_pipelines.operations.dead_letters.tables import TRIAGE_CLASSES, Letter, LetterFilter
from kfm_pipelines.services import Services
from kfm_pipelines.text import make_printable


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which letters: the same words for every command."""
    for option in (
        click.option("--newer-than", type=Age(), help="Changed less than so long ago: 15m, 2h, 7d."),
        click.option("--older-than", type=Age(), help="Last changed longer ago than: 15m, 2h, 7d."),
        click.option("--key", type=StorableText(), help="Of this key; a * at the end stands for the rest."),
        click.option("--dataset", type=StorableText(), help="Of this dataset."),
        click.option("--class", "triage", type=click.Choice(TRIAGE_CLASSES), help="Of this class."),
    ):
        command = option(command)
    return command


@click.group()
def dlq() -> None:
    """Dead letters: messages that were refused and keys that failed."""


@dlq.command("list")
@filter_options
@click.option(
    "--state",
    default="open",
    show_default=True,
    type=click.Choice(["open", "redriving", "quarantined", "closed", "all"]),
)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@json_option
def list_letters(state: str, limit: int, as_json: bool, **wanted: Any) -> None:
    """List dead letters, oldest first."""
    states = (*tables.LIVE_STATES, "closed") if state == "all" else (state,)
    with open_services() as services:
        chosen = letter_filter(states=states, **wanted)
        found = tables.find_letters(services.database, chosen, limit)
        counts = tables.count_letters(services.database, chosen)
    if as_json:
        print_json(
            {
                "letters": [_letter_document(letter) for letter in found],
                "total": sum(counts.values()),
                "classes": counts,
            }
        )
        return
    _display_list(found, counts)


@dlq.command()
@click.argument("letter", type=int)
@click.option(
    "--payload", is_flag=True, help="Show the message itself as well; it may hold what reviewers may not see."
)
@json_option
def show(letter: int, payload: bool, as_json: bool) -> None:
    """Show one dead LETTER: reason, trace, lineage, history, and what redriving it would do."""
    with open_services() as services:
        found = tables.read_letter(services.database, letter)
        record = letter_record(services, found)
        record["redrive_would"] = redriving.describe(services, found)
        record["red_bytes"] = _refused_bytes(services, found)
    if payload:
        record["body"] = found.body if as_json or found.body is None else repr(found.body)
    if as_json:
        print_json(record)
    else:
        _display_record(record)


def _refused_bytes(services: Services, letter: Letter) -> dict[str, Any] | None:
    """A message that SQS set aside may name a key and still have no transaction."""
    txn = letter.lineage.get("txn")
    return find_refused_bytes(services, letter.key, txn) if letter.key and txn else None


@dlq.command()
@click.argument("ids", nargs=-1, type=int, metavar="[LETTER]...")
@filter_options
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000), help="At most so many.")
@click.option("--rate", default=5.0, show_default=True, type=click.FloatRange(0.01, 1000), help="So many a second.")
@click.option(
    "--canary",
    default=3,
    show_default=True,
    type=click.IntRange(0),
    help="Send so many first; stop if one fails again.",
)
@click.option(
    "--wait", default=300, show_default=True, type=click.IntRange(1), help="Wait so many seconds for results."
)
@click.option("--work", is_flag=True, help="Do the work in this process, where no daemon runs.")
@click.option(
    "--resume", type=StorableText(), metavar="ID", help="Go on with a redrive that was interrupted, at its own rate."
)
@click.option("--stop", type=StorableText(), metavar="ID", help="Give up a redrive; what is undecided is open again.")
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
        require_selection(ids, chosen)
    elif dry_run or has_selection(ids, chosen):
        raise click.UsageError("--resume goes on with the letters of that redrive; it takes no others and no --dry-run")
    with open_services() as services:
        tables.check_open(services.database, ids)
        wanted = letter_filter(ids=ids, **chosen)
        if dry_run:
            _display_plan(services, tables.find_letters(services.database, wanted, limit), how, as_json)
            return
        redrive_id = resume or redriving.begin(services, wanted, limit=limit, canary=how["canary"], rate=how["rate"])
        if redrive_id is None:
            _display_no_match(as_json)
            return
        done = _run_with_progress(services, redrive_id, how, quiet=as_json)
    if as_json:
        print_json({"redrive": redrive_id, "sent": done.sent, "succeeded": done.succeeded, "failed": done.failed})
    else:
        console.print(f"redrive {redrive_id}: {done.sent} sent, {done.succeeded} succeeded, {done.failed} failed again")
    if done.failed:
        raise click.exceptions.Exit(1)


@dlq.command()
@click.argument("ids", nargs=-1, type=int, metavar="[LETTER]...")
@filter_options
@click.option("--reason", type=StorableText(), required=True, help="Why it cannot be mended; kept with the letter.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000), help="At most so many.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@json_option
def quarantine(ids: tuple[int, ...], reason: str, limit: int, dry_run: bool, as_json: bool, **chosen: Any) -> None:
    """Set dead letters aside for good, with everything known about them."""
    require_selection(ids, chosen)
    if not reason.strip():
        raise click.UsageError("--reason is empty; whoever finds the letter later has nothing else to go by")
    with open_services() as services:
        tables.check_open(services.database, ids)
        wanted = letter_filter(ids=ids, **chosen)
        if dry_run:
            found = tables.find_letters(services.database, wanted, limit)
        else:
            found = tables.quarantine(services.database, wanted, reason, limit)
            _export(services)
    if as_json:
        print_json({"quarantined": [letter.id for letter in found], "dry_run": dry_run})
    else:
        would = "would be " if dry_run else ""
        console.print(f"{len(found)} letters {would}quarantined: {', '.join(str(one.id) for one in found) or 'none'}")


def _stop(redrive_id: str, as_json: bool) -> None:
    with open_services() as services:
        reopened = redriving.stop(services, redrive_id)
    if as_json:
        print_json({"redrive": redrive_id, "reopened": reopened})
    else:
        console.print(f"redrive {redrive_id} has ended; {reopened} letters are open again")


def _export(services: Services) -> None:
    """What is done is done, even if its record cannot be written now."""
    try:
        export_letters(services)
    except KfmError as error:
        stderr_console.print(f"the records follow later: {error}", markup=False)


def _run_with_progress(services: Services, redrive_id: str, options: dict[str, Any], *, quiet: bool) -> RedriveProgress:
    """Carry it out; whatever ends it early, its id is on the screen, without which nobody could go on."""
    total = len(redrives.item_states(services.database, redrive_id))
    try:
        with progress(f"redrive {redrive_id}", total, quiet=quiet) as show_done:
            return redriving.run_redrive(services, redrive_id, _redrive_options(services, options, show_done))
    except RedriveStopped:
        raise
    except (KeyboardInterrupt, KfmError) as stop:
        if total and redrive_id not in str(stop):
            stderr_console.print(
                f"redrive {redrive_id} is not over; go on with `kfm dlq redrive --resume {redrive_id}`"
            )
        raise


def _redrive_options(
    services: Services, options: dict[str, Any], update_progress: Callable[[int], None]
) -> RedriveOptions:
    session = current_session()

    def work() -> None:
        from kfm_pipelines.dispatch.worker import work as run_worker

        run_worker(services, session.definitions(services.settings.resources), session.chores(), once=True)

    def show(now: RedriveProgress) -> None:
        update_progress(now.decided)

    return RedriveOptions(float(options["wait"]), work if options["work"] else lambda: None, show)


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
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("letter", "changed", "class", "stage", "key or dataset", "reason"):
        table.add_column(column, overflow="fold")
    for one in letters:
        about = one.key or one.dataset or (one.queue and f"queue {one.queue}") or ""
        row = (str(one.id), format_time(one.changed_at), one.triage, one.failure_stage, about, one.reason)
        table.add_row(*(make_printable(cell) for cell in row))
    if letters:
        console.print(table)
    total = sum(counts.values())
    classes = ", ".join(f"{count} {name}" for name, count in counts.items())
    console.print(
        f"{total} letters"
        + (f": {classes}" if classes else "")
        + (f"; {len(letters)} shown" if total > len(letters) else "")
    )


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


def _display_plan(services: Services, letters: list[Letter], options: dict[str, Any], as_json: bool) -> None:
    plan = [{**_letter_document(letter), "would": redriving.describe(services, letter)} for letter in letters]
    if as_json:
        print_json({"dry_run": True, "letters": plan, "canary": options["canary"], "rate": options["rate"]})
        return
    for one in plan:
        console.print(f"letter {one['letter']} ({one['class']}): would {one['would']}")
    canary = min(options["canary"], len(plan))
    seconds = len(plan) / options["rate"]
    console.print(
        f"{len(plan)} letters; the first {canary} as a canary, then {options['rate']:g} a second, about {seconds:.0f} s. "
        "Nothing was done."
    )


def _display_no_match(as_json: bool) -> None:
    if as_json:
        print_json({"redrive": None, "sent": 0, "succeeded": 0, "failed": 0})
    else:
        console.print("no open letter matches; nothing was done")


def letter_filter(
    triage: str | None = None,
    dataset: str | None = None,
    key: str | None = None,
    older_than: float | None = None,
    newer_than: float | None = None,
    ids: tuple[int, ...] = (),
    states: tuple[str, ...] = ("open",),
) -> LetterFilter:
    return LetterFilter(ids, triage, dataset, key, older_than, newer_than, states)


def has_selection(ids: tuple[int, ...], filters: dict[str, Any]) -> bool:
    return bool(ids) or any(value is not None for value in filters.values())


def require_selection(ids: tuple[int, ...], filters: dict[str, Any]) -> None:
    if not has_selection(ids, filters):
        raise click.UsageError("name letters, or choose them with --class, --dataset, --key or an age")

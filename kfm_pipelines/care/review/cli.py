"""`kfm review`: look at what is about to be published of sensitive data, and say yes or no to exactly that."""

import os
import webbrowser
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import indent
from typing import Any

import click
import yaml
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.care import exempt as exempting
from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.review import decide, tables
from kfm_pipelines.care.review.page_data import review_page
from kfm_pipelines.care.tables import Exemption, exemptions_of
from kfm_pipelines.console.options import Reason, StorableText, user_name
from kfm_pipelines.console.output import console, format_time, json_option, print_json, stderr_console
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import ReviewRefused
from kfm_pipelines.services import Services

key_file = click.option(
    "--key", "key_path", required=True, type=click.Path(path_type=Path), help="File with your private key."
)


reason_option = click.option("--reason", type=Reason(), required=True, help="Why; kept with the decision for ever.")
digest_option = click.option(
    "--digest", type=StorableText(), required=True, help="The release you looked at, as `kfm review show` names it."
)


def decision_options(command: Callable[..., None]) -> Callable[..., None]:
    """What a yes and a no both need."""
    for option in (json_option, reason_option, key_file, digest_option, click.argument("key", type=StorableText())):
        command = option(command)
    return command


@click.group()
def review() -> None:
    """Releases of sensitive data: look at them, approve or refuse them."""


@review.command("list")
@click.option("--dataset", type=StorableText(), help="Only of this dataset.")
@json_option
def list_reviews(dataset: str | None, as_json: bool) -> None:
    """List the releases that await review, the longest waiting first."""
    with open_services() as services:
        _remove_stale_pages(services)
        rows = [_review_row(services, waiting) for waiting in tables.pending_reviews(services.database, dataset)]
    if as_json:
        print_json({"waiting": rows})
        return
    _display_table(("since", "key", "revision", "rows", "authority", "release"), rows)
    console.print(f"{len(rows)} releases await review" + ("; look at one with `kfm review show KEY`" if rows else ""))


@review.command()
@click.argument("key", type=StorableText())
@click.option(
    "--key",
    "key_path",
    type=click.Path(path_type=Path),
    help="Your private key; without it the true places are left out.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the page.")
@click.option("--open", "show_now", is_flag=True, help="Open the page in a browser.")
@json_option
def show(key: str, key_path: Path | None, out: Path | None, show_now: bool, as_json: bool) -> None:
    """Write the page for one KEY: maps, policy, measures, and what is new since the last release."""
    with open_services() as services:
        _remove_stale_pages(services)
        digest = tables.pending_review(services.database, key).release_digest
        page = review_page(services, key, key_path)
        if digest not in page:
            raise ReviewRefused(f"{key}: another release came while the page was made; look again")
        path = out or _page_path(services, key, restricted=key_path is not None)
    _write_private(path, page)
    if as_json:
        print_json({"key": key, "release": digest, "page": str(path), "restricted": key_path is not None})
    else:
        console.print(
            f"Page         {os.path.relpath(path)}" + ("   restricted: it shows true places" if key_path else "")
        )
        console.print(f"Release      {digest}")
        console.print(f"Approve      kfm review approve {key} --digest {digest[:16]} --key FILE --reason TEXT")
    if show_now:
        webbrowser.open(path.absolute().as_uri())


@review.command()
@decision_options
def approve(key: str, digest: str, key_path: Path, reason: str, as_json: bool) -> None:
    """Say yes to one release of KEY: it is published, if its bytes come out the same."""
    with open_services() as services:
        waiting = decide.approve(services, key, digest, key_path, reason)
        _remove_stale_pages(services)
    _display_decision(
        as_json, "approved", key, waiting.release_digest, "it is published by the next run, or by `kfm work --once`"
    )


@review.command()
@decision_options
def reject(key: str, digest: str, key_path: Path, reason: str, as_json: bool) -> None:
    """Say no to one release of KEY: it is not published, and what was staged is removed."""
    with open_services() as services:
        waiting = decide.reject(services, key, digest, key_path, reason)
        _remove_stale_pages(services)
    _display_decision(
        as_json, "rejected", key, waiting.release_digest, "nothing is published; the reason is in `kfm dlq list`"
    )


@review.command()
@click.argument("dataset", type=StorableText())
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), required=True, help="The last day it counts.")
@click.option("--keys", type=StorableText(), default="", help="Only keys that begin like this.")
@key_file
@reason_option
@json_option
def exempt(dataset: str, until: Any, keys: str, key_path: Path, reason: str, as_json: bool) -> None:
    """Let DATASET be published unmasked for a while. Once that is over, it is not published until somebody decides."""
    with open_services() as services:
        given = exempting.grant_exemption(services, dataset, keys, until.date(), key_path, reason)
        line = _exemption_row(given, services.today())
    if as_json:
        print_json(line)
    else:
        console.print(f"{given.id}: {dataset} is exempt from {given.policy} until {given.until}")


@review.command()
@click.option("--dataset", type=StorableText(), help="Only of this dataset.")
@json_option
def exemptions(dataset: str | None, as_json: bool) -> None:
    """List all exemptions that were ever given, the newest first."""
    with open_services() as services:
        today = services.today()
        rows = [_exemption_row(one, today) for one in exemptions_of(services.database, dataset)]
    if as_json:
        print_json({"exemptions": rows})
        return
    _display_table(("id", "dataset", "policy", "keys", "until", "state", "by", "reason"), rows)
    console.print(f"{len(rows)} exemptions")


@review.command("end")
@click.argument("exemption", type=StorableText())
@key_file
@reason_option
@json_option
def end_exemption(exemption: str, key_path: Path, reason: str, as_json: bool) -> None:
    """End one EXEMPTION: from now on its keys are masked again."""
    with open_services() as services:
        ended = exempting.end_exemption(services, exemption, key_path, reason)
    if as_json:
        print_json({"exemption": ended.id, "ended": True})
    else:
        console.print(f"{ended.id} has ended; {ended.dataset} is masked under {ended.policy} again")


@review.command()
@click.argument("authority")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Where the private key goes."
)
@click.option(
    "--holder", type=StorableText(), default=user_name("--holder"), show_default="you", help="Whose key it is."
)
@click.option("--days", default=730, show_default=True, type=click.IntRange(1, 3650), help="How long it counts.")
@json_option
def keygen(authority: str, out: Path, holder: str, days: int, as_json: bool) -> None:
    """Make a reviewer's key pair for AUTHORITY, and print what goes into resources/authorities."""
    from kfm_pipelines.care.signatures import create_private_key, public_key_of

    today = datetime.now(UTC).date()
    valid = {"valid_from": today, "valid_until": today + timedelta(days=days)}
    key = {"holder": holder, "public_key": public_key_of(create_private_key(out)), **valid}
    if as_json:
        print_json({"authority": authority, "private_key": str(out), "key": key})
        return
    stderr_console.print(f"the private key is in {out}; it is yours alone. Under keys: in {authority}.yaml goes")
    click.echo(indent(yaml.safe_dump([key], sort_keys=False, allow_unicode=True, width=1000), "  "), nl=False)


def _review_row(services: Services, pending: tables.PendingReview) -> dict[str, Any]:
    policy = policy_of(services, services.datasets[pending.dataset])
    return {
        "key": pending.key,
        "dataset": pending.dataset,
        "since": pending.since,
        "revision": pending.release["revision"],
        "rows": pending.release["rows"],
        "policy": policy.name,
        "authority": policy.authority,
        "release": pending.release_digest,
    }


def _exemption_row(one: Exemption, today: date) -> dict[str, Any]:
    state = "ended" if one.ended_at else "run out, blocks" if one.until < today else "counts"
    return {
        "id": one.id,
        "dataset": one.dataset,
        "policy": one.policy,
        "keys": one.key_prefix or "all",
        "until": one.until,
        "state": state,
        "by": one.signed.holder,
        "reason": one.signed.statement["reason"],
    }


def _display_table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    from kfm_pipelines.text import make_printable

    if not rows:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        values = (format_time(row[c]) if c == "since" else str(row[c]) for c in columns)
        table.add_row(*(make_printable(value[:16] if len(value) == 64 else value) for value in values))
    console.print(table)


def _remove_stale_pages(services: Services) -> None:
    """Pages with true places are for as long as their release waits, wherever it was decided about."""
    waiting = {_page_path(services, one.key, restricted=True) for one in tables.pending_reviews(services.database)}
    for path in (services.settings.home / "restricted").glob("*.html"):
        if path not in waiting:
            path.unlink(missing_ok=True)


def _page_path(services: Services, key: str, *, restricted: bool) -> Path:
    folder = services.settings.home / ("restricted" if restricted else "review")
    return folder / f"{key.replace(':', '_')}.html"


def _write_private(path: Path, page: str) -> None:
    """For the eyes of whoever asked; a page with true places is nobody else's."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        raise ReviewRefused(f"the page cannot be written: {error.filename or path}: {error.strerror}") from None


def _display_decision(as_json: bool, decision: str, key: str, digest: str, next_step: str) -> None:
    if as_json:
        print_json({"decision": decision, "key": key, "release": digest})
    else:
        console.print(f"{decision}: {key}, release {digest[:16]}…; {next_step}")

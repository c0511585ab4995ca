"""`kfm review`: look at releases of sensitive data before they are published, and approve or reject them."""

import os
import webbrowser
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import indent
from typing import Any

import click
import yaml

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.review import decide, tables
from kfm_pipelines.care.tables import Exemption, exemptions_of
from kfm_pipelines.console.options import Reason, StorableText, default_option, user_name
from kfm_pipelines.console.output import console, json_option, print_table, respond, stderr_console
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import ReviewRefused
from kfm_pipelines.services import Services

key_file = click.option(
    "--key", "key_path", required=True, type=click.Path(path_type=Path), help="File with your private key."
)
reason_option = click.option("--reason", type=Reason(), required=True, help="Why; stored with the decision for ever.")
digest_option = click.option(
    "--digest", type=StorableText(), required=True, help="The release you looked at, from `kfm review show`."
)
dataset_option = click.option("--dataset", type=StorableText(), help="Only this dataset.")


def decision_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (json_option, reason_option, key_file, digest_option, click.argument("key", type=StorableText())):
        command = option(command)
    return command


@click.group()
def review() -> None:
    """Look at releases of sensitive data, and approve or reject them."""


@review.command("list")
@dataset_option
@json_option
def list_reviews(dataset: str | None, as_json: bool) -> None:
    """List the releases that await review, longest waiting first."""
    with open_services() as services:
        _remove_stale_pages(services)
        rows = [_review_row(services, pending) for pending in tables.pending_reviews(services.database, dataset)]

    def display() -> None:
        columns = ("since", "key", "revision", "rows", "authority", "release")
        print_table(columns, [[*(row[name] for name in columns[:-1]), row["release"][:16]] for row in rows])
        count = "1 release awaits review" if len(rows) == 1 else f"{len(rows)} releases await review"
        console.print(count + ("; look at one with `kfm review show KEY`" if rows else ""))

    respond({"waiting": rows}, display, as_json=as_json)


@review.command()
@click.argument("key", type=StorableText())
@click.option(
    "--key",
    "key_path",
    type=click.Path(path_type=Path),
    help="Your private key; without it the true places are left out.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the page.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@json_option
def show(key: str, key_path: Path | None, out: Path | None, open_page: bool, as_json: bool) -> None:
    """Write the review page of KEY: maps, policy, measures, and changes since the last release."""
    from kfm_pipelines.care.review.page_data import review_page  # loads matplotlib

    with open_services() as services:
        _remove_stale_pages(services)
        digest = tables.pending_review(services.database, key).release_digest
        page = review_page(services, key, key_path)
        if digest not in page:
            raise ReviewRefused(f"{key}: another release was staged while the page was written; look again")
        path = out or _page_path(services, key, restricted=key_path is not None)
    _write_private(path, page)

    def display() -> None:
        restricted = "   restricted: it shows true places" if key_path else ""
        console.print(f"Page         {os.path.relpath(path)}{restricted}")
        console.print(f"Release      {digest}")
        console.print(f"Approve      kfm review approve {key} --digest {digest[:16]} --key FILE --reason TEXT")

    document = {"key": key, "release": digest, "page": str(path), "restricted": key_path is not None}
    respond(document, display, as_json=as_json)
    if open_page:
        webbrowser.open(path.absolute().as_uri())


@review.command()
@decision_options
def approve(key: str, digest: str, key_path: Path, reason: str, as_json: bool) -> None:
    """Approve one release of KEY: it is published if its bytes are reproduced exactly."""
    with open_services() as services:
        release = decide.approve(services, key, digest, key_path, reason).release_digest
        _remove_stale_pages(services)
    _print_decision(as_json, "approved", key, release, "the next run or `kfm work --once` publishes it")


@review.command()
@decision_options
def reject(key: str, digest: str, key_path: Path, reason: str, as_json: bool) -> None:
    """Reject one release of KEY: it is not published, and what was staged is removed."""
    with open_services() as services:
        release = decide.reject(services, key, digest, key_path, reason).release_digest
        _remove_stale_pages(services)
    _print_decision(as_json, "rejected", key, release, "nothing is published; the reason is in `kfm dlq list`")


@review.command()
@click.argument("dataset", type=StorableText())
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), required=True, help="The last day of the exemption.")
@click.option("--keys", type=StorableText(), default="", help="Only keys with this prefix.")
@key_file
@reason_option
@json_option
def exempt(dataset: str, until: Any, keys: str, key_path: Path, reason: str, as_json: bool) -> None:
    """Let DATASET be published unmasked for a while. After that nothing is published until someone decides."""
    with open_services() as services:
        granted = decide.grant_exemption(services, dataset, keys, until.date(), key_path, reason)
        document = _exemption_row(granted, services.today())
    message = f"{granted.id}: {dataset} is exempt from {granted.policy} until {granted.until}"
    respond(document, lambda: console.print(message), as_json=as_json)


@review.command()
@dataset_option
@json_option
def exemptions(dataset: str | None, as_json: bool) -> None:
    """List all exemptions ever granted, newest first."""
    with open_services() as services:
        today = services.today()
        rows = [_exemption_row(one, today) for one in exemptions_of(services.database, dataset)]

    def display() -> None:
        columns = ("id", "dataset", "policy", "keys", "until", "state", "by", "reason")
        print_table(columns, [[row[name] for name in columns] for row in rows])
        console.print("1 exemption" if len(rows) == 1 else f"{len(rows)} exemptions")

    respond({"exemptions": rows}, display, as_json=as_json)


@review.command("end")
@click.argument("exemption", type=StorableText())
@key_file
@reason_option
@json_option
def end_exemption(exemption: str, key_path: Path, reason: str, as_json: bool) -> None:
    """End one EXEMPTION: its keys are masked again."""
    with open_services() as services:
        ended = decide.end_exemption(services, exemption, key_path, reason)
    message = f"{ended.id} has ended; {ended.dataset} is masked under {ended.policy} again"
    respond({"exemption": ended.id, "ended": True}, lambda: console.print(message), as_json=as_json)


@review.command()
@click.argument("authority")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Where to write the private key."
)
@click.option(
    "--holder", type=StorableText(), default=user_name("--holder"), show_default="you", help="The owner of the key."
)
@default_option("--days", default=730, type=click.IntRange(1, 3650), help="How long it is valid.")
@json_option
def keygen(authority: str, out: Path, holder: str, days: int, as_json: bool) -> None:
    """Create a reviewer's key pair for AUTHORITY, and print the entry for resources/authorities."""
    from kfm_pipelines.care.signatures import create_private_key, public_key_of

    today = datetime.now(UTC).date()
    valid = {"valid_from": today, "valid_until": today + timedelta(days=days)}
    key = {"holder": holder, "public_key": public_key_of(create_private_key(out)), **valid}

    def display() -> None:
        stderr_console.print(f"the private key is in {out}; keep it to yourself. Add under keys: in {authority}.yaml")
        click.echo(indent(yaml.safe_dump([key], sort_keys=False, allow_unicode=True, width=1000), "  "), nl=False)

    respond({"authority": authority, "private_key": str(out), "key": key}, display, as_json=as_json)


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


def _remove_stale_pages(services: Services) -> None:
    """Removes pages with true places whose release no longer awaits review, wherever it was decided about."""
    pending = {_page_path(services, one.key, restricted=True) for one in tables.pending_reviews(services.database)}
    for path in (services.settings.home / "restricted").glob("*.html"):
        if path not in pending:
            path.unlink(missing_ok=True)


def _page_path(services: Services, key: str, *, restricted: bool) -> Path:
    folder = services.settings.home / ("restricted" if restricted else "review")
    return folder / f"{key.replace(':', '_')}.html"


def _write_private(path: Path, page: str) -> None:
    """Only the owner may read the page."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        raise ReviewRefused(f"the page cannot be written: {error.filename or path}: {error.strerror}") from None


def _print_decision(as_json: bool, decision: str, key: str, digest: str, next_step: str) -> None:
    message = f"{decision}: {key}, release {digest[:16]}…; {next_step}"
    document = {"decision": decision, "key": key, "release": digest}
    respond(document, lambda: console.print(message), as_json=as_json)

"""`kfm verify`: whether what is published is what was published. Needs the store and a public key, nothing else."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, json_option, print_json, progress
from kfm_pipelines.operations.verify import (
    Check,
    TrustRoot,
    VerificationResult,
    load_trust_root,
    verify_all,
    verify_key,
)
from kfm_pipelines.settings import ReaderSettings, load_reader_settings
from kfm_pipelines.stores import open_store
from kfm_pipelines.stores.layout import CATALOG
from kfm_pipelines.text import truncate_line

MAX_PATH_LENGTH = 1024


@click.command()
@click.argument("key", required=False, type=StorableText())
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every key, and every file in catalog, objects, processed and reports/validation.",
)
@click.option(
    "--store", "store_url", type=StorableText(), help="Where it is published; else KFM_STORE_URL, or .kfm/data."
)
@click.option(
    "--public-key",
    type=click.Path(path_type=Path),
    help="PEM file with the keys that must have signed; else KFM_VERIFY_KEY.",
)
@json_option
def verify(key: str | None, everything: bool, store_url: str | None, public_key: Path | None, as_json: bool) -> None:
    """Check one published KEY, or with --all everything that is published, from the bytes alone.

    Digests are recomputed, signatures checked, and data, catalog, provenance and what is said of masking compared with
    each other; no database is asked. Exits with 1 when anything does not agree, and names the file. Without a public
    key the keys in the store itself are used: that shows that everything belongs together, and not who made it.

    Nobody can see from the files alone that a whole store was put back to an earlier state, or that a validation
    report is gone: those are removed after KFM_FINDINGS_DAYS.
    """
    if everything == (key is not None):
        raise click.UsageError("give a KEY, or --all")
    settings = _load_settings(store_url, public_key)
    store = open_store(settings.store_url)
    trust = load_trust_root(store, settings.signing_key, settings.verify_key)
    if key is not None:
        report = _Report([verify_key(store, trust, key)])
    else:
        with _verify_progress(quiet=as_json) as tell:
            report = _Report(verify_all(store, trust, tell))
    if as_json:
        print_json({"store": store.url, **report.document(whole=key is not None), "keys": _key_documents(trust)})
    else:
        report.display(whole=key is not None)
        for line in _format_keys(trust):
            console.print(line)
    if report.failed:
        raise click.exceptions.Exit(1)


class _Report:
    """What was checked, counted as it comes: only of a single key is there room for every check."""

    def __init__(self, results: Iterable[VerificationResult]) -> None:
        self.subjects: dict[str, tuple[int, tuple[Check, ...]]] = {}
        self.counts: Counter[str] = Counter()
        self.checks: list[Check] = []
        self.notes: list[Check] = []
        for one in results:
            self.subjects[one.subject] = (len(one.checks), one.failed)
            self.counts.update(check.what for check in one.checks)
            self.checks = list(one.checks)
            self.notes += [check for check in one.checks if check.note]

    @property
    def failed(self) -> list[Check]:
        """Each once: many keys may lead to the same broken document."""
        return list(dict.fromkeys(check for _, failed in self.subjects.values() for check in failed))

    def document(self, *, whole: bool) -> dict[str, Any]:
        return {
            "ok": not self.failed,
            "checked": dict(sorted(self.counts.items())),
            "failed": [asdict(check) for check in self.failed],
            "notes": [asdict(check) for check in self.notes],
            "subjects": [
                {"subject": subject, "ok": not failed, "checks": count}
                for subject, (count, failed) in self.subjects.items()
            ],
            **({"checks": [asdict(check) for check in self.checks]} if whole else {}),
        }

    def display(self, *, whole: bool) -> None:
        if whole:
            _display_checks(self.checks)
        else:
            counted = Table("checked", "times", box=SIMPLE_HEAD, pad_edge=False)
            for what, count in sorted(self.counts.items()):
                counted.add_row(what, str(count))
            console.print(counted)
        for check in self.notes:
            console.print(f"note    {_format_check(check)}")
        for check in self.failed:  # a line each, whole in any window: a table would cut the name of the file
            console.print(f"FAILED  {_format_check(check)}", style="red")
        keys = sum(subject != CATALOG for subject in self.subjects)
        wrong = f"{len(self.failed)} failed" if self.failed else "all ok"
        console.print(f"{keys} {'key' if keys == 1 else 'keys'}, {self.counts.total()} checks, {wrong}", style="bold")


def _display_checks(checks: Iterable[Check]) -> None:
    table = Table("checked", "", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("file", "found"):
        table.add_column(name, overflow="fold")
    for check in checks:
        style = "" if check.ok else "red"
        said = "ok" if check.ok else "FAILED"
        table.add_row(
            check.what, said, truncate_line(check.file, MAX_PATH_LENGTH), truncate_line(check.found, 300), style=style
        )
    console.print(table)


def _format_check(check: Check) -> str:
    found = f": {truncate_line(check.found, 300)}" if check.found else ""
    return f"{truncate_line(check.file, MAX_PATH_LENGTH)}: {check.what}{found}"


@contextmanager
def _verify_progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """How many keys there are is known once the catalog was walked."""
    with progress("keys verified", None, quiet=quiet) as tell:
        yield lambda done, total: tell(done)


def _load_settings(store_url: str | None, public_key: Path | None) -> ReaderSettings:
    settings = load_reader_settings({**os.environ, "KFM_STORE_URL": _as_url(store_url)} if store_url else None)
    return replace(settings, verify_key=public_key) if public_key else settings


def _as_url(store: str) -> str:
    """A folder may be given by its path."""
    return store if "://" in store else Path(store).absolute().as_uri()


def _key_documents(trust: TrustRoot) -> list[dict[str, str]]:
    return [{"key": key_id, "origin": trust.origins[key_id].value} for key_id in sorted(trust.used)]


def _format_keys(trust: TrustRoot) -> Iterator[str]:
    for key_id in sorted(trust.used):
        yield f"signed with key {key_id[:16]}…, {trust.origins[key_id]}"
    if not trust.used:
        yield "no signature could be checked"
    elif not trust.proves_origin:
        yield "A key found beside the documents shows that they belong together, not who made them: give --public-key"

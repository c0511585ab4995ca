"""`kfm verify`: checks what is published. Needs the store and a public key, nothing else."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, json_option, print_table, progress, respond
from kfm_pipelines.console.session import current_session
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
    "--store", "store_url", type=StorableText(), help="URL or folder of the store; else KFM_STORE_URL, or .kfm/data."
)
@click.option(
    "--public-key", type=click.Path(path_type=Path), help="PEM file with the trusted public keys; else KFM_VERIFY_KEY."
)
@json_option
def verify(key: str | None, everything: bool, store_url: str | None, public_key: Path | None, as_json: bool) -> None:
    """Check one published KEY, or with --all everything that is published, from the bytes alone.

    Recomputes digests, checks signatures, and compares data, catalog, provenance and masking notices with each other;
    uses no database. Exits with 1 when anything disagrees, and names the file. Without a public key it uses the keys in
    the store: they prove that the files belong together, not who made them.

    The files alone cannot show that a whole store was reset to an earlier state, or that a validation report is gone:
    those are removed after KFM_FINDINGS_DAYS.
    """
    if everything == (key is not None):
        raise click.UsageError("give a KEY, or --all")
    settings = _load_settings(store_url, public_key)
    if store_url is None and settings.store_url.startswith("s3:"):
        current_session().use_running_stack()
    store = open_store(settings.store_url)
    trust = load_trust_root(store, settings.signing_key, settings.verify_key)
    if key is not None:
        report = _Report([verify_key(store, trust, key)])
    else:
        with progress("keys verified", None, quiet=as_json) as on_progress:
            report = _Report(verify_all(store, trust, lambda done, total: on_progress(done)))
    keys = [{"key": key_id, "origin": trust.origins[key_id].value} for key_id in sorted(trust.used)]
    document = {"store": store.url, **report.document(whole=key is not None), "keys": keys}
    respond(document, lambda: report.display(trust, whole=key is not None), as_json=as_json, ok=not report.failed)


class _Report:
    """Counts checks as they come; keeps each single one only when a single key is verified."""

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
        """Lists each failure once: many keys may lead to the same broken document."""
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

    def display(self, trust: TrustRoot, *, whole: bool) -> None:
        if whole:
            rows = [(c.what, "ok" if c.ok else "FAILED", c.file, truncate_line(c.found, 300)) for c in self.checks]
            print_table(("checked", "", "file", "found"), rows)
        else:
            print_table(("checked", "times"), sorted(self.counts.items()))
        for check in self.notes:
            console.print(f"note    {_format_check(check)}")
        for check in self.failed:  # one line each: a table would break the file name
            console.print(f"FAILED  {_format_check(check)}", style="red")
        keys = sum(subject != CATALOG for subject in self.subjects)
        wrong = f"{len(self.failed)} failed" if self.failed else "all ok"
        console.print(f"{keys} {'key' if keys == 1 else 'keys'}, {self.counts.total()} checks, {wrong}", style="bold")
        for key_id in sorted(trust.used):
            console.print(f"signed with key {key_id[:16]}…, {trust.origins[key_id]}")
        if not trust.used:
            console.print("no signature could be checked")
        elif not trust.proves_origin:
            console.print(
                "A key from the store proves that the files belong together, not who made them: give --public-key"
            )


def _format_check(check: Check) -> str:
    found = f": {truncate_line(check.found, 300)}" if check.found else ""
    return f"{truncate_line(check.file, MAX_PATH_LENGTH)}: {check.what}{found}"


def _load_settings(store_url: str | None, public_key: Path | None) -> ReaderSettings:
    if store_url and "://" not in store_url:
        store_url = Path(store_url).absolute().as_uri()
    settings = load_reader_settings({**os.environ, "KFM_STORE_URL": store_url} if store_url else None)
    return replace(settings, verify_key=public_key) if public_key else settings

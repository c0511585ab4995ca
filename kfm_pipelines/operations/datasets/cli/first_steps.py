"""`kfm datasets new` and `try`: from a file to a declaration, and from a declaration to what it would publish."""

import os
import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import click

from kfm_pipelines.console.output import console, json_option, respond
from kfm_pipelines.console.session import current_session
from kfm_pipelines.declarations.dataset import pipeline_of
from kfm_pipelines.errors import DeclarationInvalid, InputUnreadable
from kfm_pipelines.operations.datasets.check import check_declarations
from kfm_pipelines.operations.datasets.cli.declarations import display_check, display_problems
from kfm_pipelines.operations.datasets.readiness import Readiness
from kfm_pipelines.settings import resources_directory
from kfm_pipelines.text import make_printable

MAX_OBJECT_BYTES = 2 * 1024**3
_NAME = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)*/[a-z0-9_]+(-[a-z0-9_]+)*")


@click.command()
@click.argument("name", metavar="DOMAIN/NAME")
@click.option("--from", "source", required=True, metavar="FILE|s3://BUCKET/KEY", help="One object of the dataset.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@json_option
def new(name: str, source: str, force: bool, as_json: bool) -> None:
    """Look at an object and write a complete declaration to edit, with a policy that is closed until it is decided."""
    from kfm_pipelines.operations.datasets.new.draft import SampleObject, draft_declaration
    from kfm_pipelines.operations.datasets.new.inspectors import SCENES, inspect_object

    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is not a name; write DOMAIN/NAME in lower case, such as usgs/streamflow")
    if source.endswith("/") or Path(source).is_dir():
        raise InputUnreadable(f"{source} is a folder; name one object in it. If it is a scene: {SCENES}")
    resources = resources_directory()
    declaration = resources / "datasets" / f"{pipeline_of(name)}.yaml"
    policy = resources / "policies" / f"{pipeline_of(name)}.yaml"
    for path in (declaration, policy):
        if path.exists() and not force:
            raise DeclarationInvalid(f"{path} is there already; --force replaces it")
    data, origin_name, bucket = _read(source)
    origin = SampleObject(origin_name, len(data), bucket)
    draft = draft_declaration(name, origin, inspect_object(data, origin_name), resources, datetime.now(UTC).date())
    declaration.write_text(draft.declaration, encoding="utf-8")
    policy.write_text(draft.policy, encoding="utf-8")
    result = check_declarations(resources, [declaration])
    document = {
        "dataset": name,
        "declaration": str(declaration),
        "policy": str(policy),
        "look_at": list(draft.unsure),
        "ok": result.ok,
        "problems": [asdict(problem) for problem in result.problems],
    }

    def display() -> None:
        console.print(f"written: {declaration}\nwritten: {policy}")
        for one in draft.unsure:
            console.print(make_printable(f"look at: {one}"))
        display_problems(result)
        console.print(f"Next: edit both files, then: kfm datasets check {declaration}")

    respond(document, display, as_json=as_json, ok=result.ok)


def _read(source: str) -> tuple[bytes, str, str | None]:
    """Returns the bytes, the name of the file or the key of the object, and the object's bucket."""
    address = urlsplit(source)
    if address.scheme == "s3":
        from kfm_pipelines.aws.objects import get_object

        current_session().use_running_stack()
        key = address.path.removeprefix("/")
        data, _ = get_object(address.netloc, key, None, _refuse_large)
        return data, key, address.netloc
    path = Path(source)
    if not path.is_file():
        raise click.UsageError(f"there is no file {source!r}")
    _refuse_large(path.stat().st_size, "")
    return path.read_bytes(), path.name, None


def _refuse_large(size: int, _etag: str) -> None:
    if size > MAX_OBJECT_BYTES:
        raise InputUnreadable(f"the object has {size} bytes; a smaller one of the same kind does as well")


@click.command("try")
@click.argument("declaration", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write what would be published here.")
@json_option
def try_declaration(declaration: Path, files: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Run DECLARATION on local FILES, as the objects of one key, and show what would be published.

    Nothing is recorded and nothing leaves this machine. Exits with 1 when it would not be published.
    """
    from kfm_pipelines.operations.datasets.cli.trial_display import display_trial, trial_document
    from kfm_pipelines.operations.datasets.trial import run_trial, write_trial

    resources = resources_directory()
    result = check_declarations(resources, [declaration])
    if not result.ok:
        problems = {"ok": False, "problems": [asdict(problem) for problem in result.problems]}
        respond(problems, lambda: display_check(result, Readiness((), ())), as_json=as_json, ok=False)
    trial = run_trial(resources, result.datasets[0], files, datetime.now(UTC).date(), os.environ)
    written = write_trial(trial, out) if out is not None else []
    document = trial_document(trial, written)
    respond(document, lambda: display_trial(document, out), as_json=as_json, ok=trial.is_green)

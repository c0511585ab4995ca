"""The command group; turns errors of all commands into one sentence without a traceback."""

import logging
import os
import signal
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfm_pipelines.care.review.cli import review
from kfm_pipelines.catalog.cli import catalog, lineage
from kfm_pipelines.cli.datasets import datasets
from kfm_pipelines.cli.demo import demo
from kfm_pipelines.cli.session import open_services, use_running_stack
from kfm_pipelines.cli.up import up
from kfm_pipelines.console.session import Session
from kfm_pipelines.dispatch.cli import drain, work
from kfm_pipelines.energy.cli import energy
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.dead_letters.cli import dlq
from kfm_pipelines.operations.doctor.cli import doctor
from kfm_pipelines.operations.kill_switch.cli import kill, unkill
from kfm_pipelines.operations.replay.cli.commands import replay
from kfm_pipelines.operations.retention.cli import gc, partitions
from kfm_pipelines.operations.scans.cli import qa
from kfm_pipelines.operations.status.cli import status
from kfm_pipelines.operations.status.telemetry_cli import metrics, trace
from kfm_pipelines.operations.verify.cli import verify
from kfm_pipelines.producer.cli import emit
from kfm_pipelines.sinks.graph.cli import graph
from kfm_pipelines.sinks.table.cli import tables
from kfm_pipelines.watermarks.cli import late, watermark

if TYPE_CHECKING:
    import dagster as dg


def _definitions(resources: Path) -> "dg.Definitions":
    from kfm_pipelines.definitions import build_definitions

    definitions = build_definitions(resources)
    exempt_loaded_objects()
    return definitions


@cache
def exempt_loaded_objects() -> None:
    """Lets garbage collections skip what is loaded by now, which stays: they take a tenth of a worker's time."""
    import gc  # a command has this name here

    gc.collect()
    gc.freeze()


def _chores() -> Any:
    from kfm_pipelines.definitions import CHORES

    return CHORES


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kfm-pipelines", prog_name="kfm")
@click.pass_context
def kfm(context: click.Context) -> None:
    """Governed, event-driven ingestion of the Kansas Frontier Matrix.

    Without KFM_POSTGRES_URL and AWS_ENDPOINT_URL a command uses the embedded stack in .kfm: the one that `kfm up` runs,
    or its own while it runs.
    """
    context.obj = Session(open_services, use_running_stack, _definitions, _chores, quiet_libraries)


for command in (
    demo, up, doctor, emit, drain, work, status, metrics, watermark, late, dlq, replay, review, kill, unkill, qa,
    catalog, gc, partitions, lineage, datasets, verify, energy, trace, tables, graph,
):  # fmt: skip
    kfm.add_command(command)


def main() -> None:
    try:
        # A script's background job ignores these signals, but must end when asked.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        quiet_libraries()
        sys.exit(kfm.main(standalone_mode=False))
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KfmError as error:
        click.echo(f"kfm: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader has closed the pipe; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def quiet_libraries() -> None:
    """Keeps warnings and logs of libraries off the terminal unless KFM_DEBUG is set."""
    if not os.environ.get("KFM_DEBUG"):
        warnings.simplefilter("ignore")
        # Without a handler Python prints log records on stderr.
        logging.getLogger().addHandler(logging.NullHandler())
        logging.setLoggerClass(HierarchyLogger)


class HierarchyLogger(logging.Logger):
    """Drops records of loggers outside Python's hierarchy, such as those Dagster creates per run."""

    def handle(self, record: logging.LogRecord) -> None:
        if self.parent is not None:
            super().handle(record)

"""`kfm datasets`: the declared datasets, their schemas and their candidates, assembled from the slices."""

import click

from kfm_pipelines.gates.cli import approve_schema
from kfm_pipelines.operations.canary.cli import canary, promote
from kfm_pipelines.operations.datasets.cli import COMMANDS


@click.group()
def datasets() -> None:
    """The declared datasets: write, check, try, add, upload, approve."""


for command in (*COMMANDS, canary, promote, approve_schema):
    datasets.add_command(command)

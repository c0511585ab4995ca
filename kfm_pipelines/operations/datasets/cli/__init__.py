"""The commands of `kfm datasets` about declarations."""

from kfm_pipelines.operations.datasets.cli.declarations import check, list_datasets, schema
from kfm_pipelines.operations.datasets.cli.first_steps import new, try_declaration
from kfm_pipelines.operations.datasets.cli.wire import add, upload

COMMANDS = (list_datasets, new, check, try_declaration, add, upload, schema)

__all__ = ["COMMANDS"]

"""The `kfm` command. Every command takes --json; an error is one sentence and exit code 1, wrong usage is 2."""

from kfm_pipelines.cli.main import main

__all__ = ["main"]

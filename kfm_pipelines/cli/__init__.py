"""The `kfm` command. Every command has --json; an error is one sentence with exit code 1, wrong usage 2."""

from kfm_pipelines.cli.main import main

__all__ = ["main"]

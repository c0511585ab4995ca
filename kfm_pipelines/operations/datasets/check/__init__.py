"""Checks declarations completely: every problem at once, each with its line and field."""

from kfm_pipelines.operations.datasets.check.declaration import CheckedFile, CheckResult, check_declarations
from kfm_pipelines.operations.datasets.check.problem import Problem

__all__ = ["CheckResult", "CheckedFile", "Problem", "check_declarations"]

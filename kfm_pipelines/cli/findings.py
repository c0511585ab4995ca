"""Findings of gates, for people at a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from kfm_pipelines.cli.output import console
from kfm_pipelines.events.quoting import printable


def show_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """Each with what was expected, what was found, and what to do about it."""
    if not findings:
        return
    console.print("findings", style="bold")
    for one in findings:
        about = f"{one['severity']}, {one['gate']} gate, {one['rule']}"
        told = f"{one['subject']}: expected {one['expected']}, found {one['measured']}"
        _line(f"  {about}: {told}")
        if one["sample"]:
            _line(f"    for example {one['sample']}")
        if one["fix"]:
            _line(f"    {one['fix']}")


def _line(text: str) -> None:
    console.print(printable(text), markup=False, highlight=False)

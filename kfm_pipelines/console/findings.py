"""Findings of gates, for people at a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from kfm_pipelines.console.output import console
from kfm_pipelines.text import printable


def show_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """Each with what was expected, what was found, and what to do about it."""
    if not findings:
        return
    console.print("findings", style="bold")
    for one in findings:
        show_finding(one)


def show_finding(finding: Mapping[str, Any], prefix: str = "") -> None:
    """One finding, after what it is about. Columns of a table would break the paths in it apart."""
    rule = f"{finding['severity']}, {finding['gate']} gate, {finding['rule']}"
    _line(f"  {prefix}{rule}: {finding['subject']}: expected {finding['expected']}, found {finding['measured']}")
    if finding["sample"]:
        _line(f"    for example {finding['sample']}")
    if finding["fix"]:
        _line(f"    {finding['fix']}")


def _line(text: str) -> None:
    console.print(printable(text), markup=False, highlight=False)

"""Displays findings of gates."""

from collections.abc import Mapping, Sequence
from typing import Any

from kfm_pipelines.console.output import console
from kfm_pipelines.text import make_printable


def display_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    if not findings:
        return
    console.print("findings", style="bold")
    for one in findings:
        display_finding(one)


def display_finding(finding: Mapping[str, Any], prefix: str = "") -> None:
    """Displays one finding as lines, because columns of a table would break paths apart."""
    rule = f"{finding['severity']}, {finding['gate']} gate, {finding['rule']}"
    _print_line(f"  {prefix}{rule}: {finding['subject']}: expected {finding['expected']}, found {finding['measured']}")
    if finding["sample"]:
        _print_line(f"    for example {finding['sample']}")
    if finding["fix"]:
        _print_line(f"    {finding['fix']}")


def _print_line(text: str) -> None:
    console.print(make_printable(text), markup=False, highlight=False)

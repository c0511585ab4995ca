"""Mask: what the dataset's policy asks for, done to every row before anything leaves the restricted tier."""

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from kfm_pipelines.care.policies import Method, Policy, refuse_if_unfit

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MaskReport:
    """What was done, for the log, the catalog and the reviewers."""

    policy: str
    method: Method
    rows: int


def mask(table: "pa.Table", policy: Policy, today: date) -> "tuple[pa.Table, MaskReport]":
    """Apply the policy; PolicyRefused when it is not fit to be applied."""
    refuse_if_unfit(policy, today)
    match policy.method:
        case "none":
            masked = table
    return masked, MaskReport(policy.name, policy.method, masked.num_rows)
